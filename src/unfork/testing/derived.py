"""Owns the expected rows of derived datasets, computed from devnet blocks in plain Python.

It shares nothing with the transforms but what the datasets mean: logs and calls are read from the
blocks themselves, and numbers are Python's own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from unfork.devnet.block import Block, Executed
from unfork.proof.keccak import keccak256
from unfork.proof.receipt import Log

Row = dict[str, Any]

TRANSFER = keccak256(b"Transfer(address,address,uint256)")
SINGLE = keccak256(b"TransferSingle(address,address,address,uint256,uint256)")
BATCH = keccak256(b"TransferBatch(address,address,address,uint256[],uint256[])")
APPROVAL = keccak256(b"Approval(address,address,uint256)")
APPROVAL_FOR_ALL = keccak256(b"ApprovalForAll(address,address,bool)")

#: Bytes of the shortest batch that is believed.
BATCH_BYTES_MIN = 128
#: Where the places and lengths within a batch end.
PLACES_END = 2**30


def everything(blocks: Iterable[Block], *, traces: bool = True) -> dict[str, list[Row]]:
    """The built-in datasets over these blocks, by the name of the dataset; rows in any order.

    `tokens` is not among them, which takes more than blocks. Without traces no block has any.
    """
    blocks = [block if traces else _untraced(block) for block in blocks]
    return {
        "token_transfers": token_transfers(blocks),
        "approvals": approvals(blocks),
        "internal_transactions": internal_transactions(blocks),
        "enriched_transfers": enriched_transfers(blocks),
        "address_transactions": address_transactions(blocks),
        "address_stats": address_stats(blocks),
        "token_balances": token_balances(blocks),
        "daily_summary": daily_summary(blocks),
    }


def token_transfers(blocks: Iterable[Block]) -> list[Row]:
    """Every transfer of ERC-20, ERC-721 and ERC-1155, in the order of the chain."""
    return [
        {**place, "batch_ordinal": ordinal, "token_address": log.address, **moved}
        for place, log in _logs(blocks)
        for ordinal, moved in enumerate(_moved(log))
    ]


def _moved(log: Log) -> list[Row]:
    """What a log says was moved, none where it says nothing of the kind."""
    match log.topics:
        case [topic, sender, receiver] if topic == TRANSFER and len(log.data) == 32:
            return [_move("erc20", sender, receiver, None, _int(log.data))]
        case [topic, sender, receiver, number] if topic == TRANSFER and not log.data:
            return [_move("erc721", sender, receiver, _int(number), 1)]
        case [topic, _, sender, receiver] if topic == SINGLE and len(log.data) == 64:
            id, amount = _int(log.data[:32]), _int(log.data[32:])
            return [_move("erc1155", sender, receiver, id, amount)]
        case [topic, _, sender, receiver] if topic == BATCH and len(log.data) >= BATCH_BYTES_MIN:
            ids, amounts = _array(log.data, 0), _array(log.data, 32)
            if ids is None or amounts is None or len(ids) != len(amounts):
                return []
            pairs = zip(ids, amounts, strict=True)
            return [_move("erc1155", sender, receiver, *pair) for pair in pairs]
    return []


def _array(data: bytes, at: int) -> list[int] | None:
    """The numbers of the array whose place stands at a byte, None where they do not fit."""
    start = _int(data[at : at + 32])
    if start >= PLACES_END or start + 32 > len(data):
        return None
    count = _int(data[start : start + 32])
    if count >= PLACES_END or start + 32 * (count + 1) > len(data):
        return None
    first = start + 32
    return [_int(data[first + 32 * index :][:32]) for index in range(count)]


def _move(standard: str, sender: bytes, receiver: bytes, number: int | None, amount: int) -> Row:
    return {
        "standard": standard,
        "from_address": sender[12:],
        "to_address": receiver[12:],
        "token_id": number,
        "amount": amount,
    }


def approvals(blocks: Iterable[Block]) -> list[Row]:
    """Every approval, in the order of the chain."""
    return [
        {**place, "token_address": log.address, **given}
        for place, log in _logs(blocks)
        for given in _approved(log)
    ]


def _approved(log: Log) -> list[Row]:
    found: Row = {"standard": None, "token_id": None, "amount": None, "is_approved": None}
    match log.topics:
        case [topic, owner, spender] if topic == APPROVAL and len(log.data) == 32:
            found.update(standard="erc20", amount=_int(log.data))
        case [topic, owner, spender, number] if topic == APPROVAL and not log.data:
            found.update(standard="erc721", token_id=_int(number))
        case [topic, owner, spender] if topic == APPROVAL_FOR_ALL and len(log.data) == 32:
            if _int(log.data) > 1:
                return []
            found.update(is_approved=_int(log.data) == 1)
        case _:
            return []
    return [{**found, "owner_address": owner[12:], "spender_address": spender[12:]}]


def internal_transactions(blocks: Iterable[Block]) -> list[Row]:
    """Every call within a transaction that moves Ether, creates a contract or ends one."""
    found = []
    for block in blocks:
        position = -1
        for index, executed in enumerate(block.transactions):
            failed = {call.path for call in executed.calls if call.error is not None}
            for call in executed.calls:
                position += 1
                is_paying = call.type == "call" and call.call_type == "call" and call.value > 0
                if not call.path or not (is_paying or call.type in ("create", "suicide")):
                    continue
                around = [call.path[:length] for length in range(len(call.path) + 1)]
                is_end = call.type == "suicide"
                found.append(
                    {
                        **_transaction(block, index, executed),
                        "trace_index": position,
                        "trace_address": ",".join(map(str, call.path)),
                        "trace_type": call.type,
                        "call_type": call.call_type,
                        "from_address": call.sender,
                        "to_address": call.to,
                        "value": call.value,
                        "gas": None if is_end else call.gas,
                        "gas_used": None if is_end or call.error is not None else call.gas_used,
                        "error": call.error,
                        "status": int(failed.isdisjoint(around)),
                    }
                )
    return found


def enriched_transfers(blocks: Iterable[Block]) -> list[Row]:
    """Every transfer with its transaction and its block."""
    found = []
    for block in blocks:
        for row in token_transfers([block]):
            executed = block.transactions[row["transaction_index"]]
            called = executed.transaction.input
            found.append(
                {
                    **row,
                    "transaction_from_address": executed.sender,
                    "transaction_to_address": executed.transaction.to,
                    "transaction_value": executed.transaction.value,
                    "transaction_method": called[:4] if len(called) >= 4 else None,
                    "transaction_gas_used": executed.gas_used,
                    "transaction_effective_gas_price": executed.effective_gas_price,
                    "transaction_status": executed.status,
                    "block_miner": block.header.miner,
                    "block_base_fee_per_gas": block.header.base_fee_per_gas,
                }
            )
    return found


def address_transactions(blocks: Iterable[Block]) -> list[Row]:
    """Every address and transaction it took part in, with all that it was in it."""
    roles = (
        *("is_sender", "is_receiver", "is_created", "is_token_sender", "is_token_receiver"),
        *("is_internal_sender", "is_internal_receiver"),
    )
    found = []
    for block in blocks:
        had: dict[tuple[int, bytes], set[str]] = {}
        for index, role, address in _parts(block):
            had.setdefault((index, address), set()).add(role)
        found += [
            {
                "address": address,
                **_transaction(block, index, block.transactions[index]),
                **{role: role in mine for role in roles},
            }
            for (index, address), mine in had.items()
        ]
    return found


def _parts(block: Block) -> Iterator[tuple[int, str, bytes]]:
    """Who took part in which transaction of a block, and as what."""
    for index, executed in enumerate(block.transactions):
        yield index, "is_sender", executed.sender
        if executed.transaction.to is not None:
            yield index, "is_receiver", executed.transaction.to
        if executed.contract_address is not None and executed.status:
            yield index, "is_created", executed.contract_address
    for row in token_transfers([block]):
        for role, address in (("sender", row["from_address"]), ("receiver", row["to_address"])):
            if any(address):
                yield row["transaction_index"], f"is_token_{role}", address
    for row in internal_transactions([block]):
        yield row["transaction_index"], "is_internal_sender", row["from_address"]
        if row["to_address"] is not None:
            is_made = row["trace_type"] == "create" and row["status"]
            role = "is_created" if is_made else "is_internal_receiver"
            yield row["transaction_index"], role, row["to_address"]


def stats_deltas(blocks: Iterable[Block]) -> list[Row]:
    """What every block added to the numbers of every address that took part in it."""
    found = []
    for block in blocks:
        numbers: dict[bytes, dict[str, int]] = {}

        def add(
            address: bytes | None, numbers: dict[bytes, dict[str, int]] = numbers, **more: int
        ) -> None:
            if address is not None:
                own = numbers.setdefault(address, dict.fromkeys(STATS, 0))
                for name, number in more.items():
                    own[name] += number

        for executed in block.transactions:
            paid = executed.gas_used * executed.effective_gas_price
            value = executed.transaction.value if executed.status else 0
            add(
                executed.sender,
                transactions_sent=1,
                transactions_failed=1 - executed.status,
                value_sent=value,
                gas_used=executed.gas_used,
                gas_spent=paid,
            )
            receiver = executed.transaction.to or executed.contract_address
            add(receiver, transactions_received=1, value_received=value)
        for row in token_transfers([block]):
            if any(row["from_address"]):
                add(row["from_address"], token_transfers_sent=1)
            if any(row["to_address"]):
                add(row["to_address"], token_transfers_received=1)
        for row in internal_transactions([block]):
            value = row["value"] if row["status"] else 0
            add(row["from_address"], internal_transactions_sent=1, value_sent=value)
            add(row["to_address"], internal_transactions_received=1, value_received=value)
        place = _place(block)
        found += [
            {
                "address": address,
                **place,
                "first_block_number": place["block_number"],
                "first_block_timestamp": place["block_timestamp"],
                **own,
            }
            for address, own in numbers.items()
        ]
    return found


#: The numbers that are added up for every address.
STATS = (
    *("transactions_sent", "transactions_received", "transactions_failed"),
    *("token_transfers_sent", "token_transfers_received"),
    *("internal_transactions_sent", "internal_transactions_received"),
    *("value_sent", "value_received", "gas_used", "gas_spent"),
)


def address_stats(blocks: Iterable[Block]) -> list[Row]:
    """The numbers of every address, with the first block it took part in and the last."""
    first = ("first_block_number", "first_block_timestamp")
    return _added(stats_deltas(blocks), key=("address",), added=STATS, kept=first)


def balance_deltas(blocks: Iterable[Block]) -> list[Row]:
    """What every block changed of every balance it touched; `balance` is what was added."""
    found = []
    for block in blocks:
        deltas: dict[tuple[Any, ...], int] = {}
        for row in token_transfers([block]):
            for address, amount in (
                (row["from_address"], -row["amount"]),
                (row["to_address"], row["amount"]),
            ):
                if any(address):
                    of = (row["token_address"], address, row["standard"], row["token_id"] or 0)
                    deltas[of] = deltas.get(of, 0) + amount
        found += [
            {**_place(block), **dict(zip(BALANCE_KEY, of, strict=True)), "balance": delta}
            for of, delta in deltas.items()
        ]
    return found


#: What tells balances apart.
BALANCE_KEY = ("token_address", "address", "standard", "token_id")


def token_balances(blocks: Iterable[Block]) -> list[Row]:
    """The balance of every token and address that any block touched."""
    return _added(balance_deltas(blocks), key=BALANCE_KEY, added=("balance",))


def _added(
    deltas: Iterable[Row],
    *,
    key: tuple[str, ...],
    added: tuple[str, ...],
    kept: tuple[str, ...] = (),
) -> list[Row]:
    """One row a key: sums, what the first delta said, and for the rest what the last one says."""
    held: dict[tuple[Any, ...], Row] = {}
    for delta in deltas:
        of = tuple(delta[name] for name in key)
        before = held.get(of)
        held[of] = dict(delta)
        if before is not None:
            held[of].update({name: before[name] + delta[name] for name in added})
            held[of].update({name: before[name] for name in kept})
    return list(held.values())


def daily_summary(blocks: Iterable[Block]) -> list[Row]:
    """One row a UTC day, in order; sums are int."""
    days: dict[Any, list[Block]] = {}
    for block in blocks:
        moment = datetime.fromtimestamp(block.header.timestamp, UTC)
        days.setdefault(moment.date(), []).append(block)
    found = []
    for day, held in sorted(days.items()):
        last = max(held, key=lambda block: block.number)
        executed = [each for block in held for each in block.transactions]
        found.append(
            {
                "day": day,
                **_place(last),
                "first_block": min(block.number for block in held),
                "blocks": len(held),
                "transactions": len(executed),
                "failed_transactions": sum(each.status == 0 for each in executed),
                "senders": len({each.sender for each in executed}),
                "contracts_created": sum(
                    each.contract_address is not None and each.status == 1 for each in executed
                ),
                "gas_used": sum(block.header.gas_used for block in held),
                "value_sum": sum(each.transaction.value for each in executed),
            }
        )
    return found


def difference(expected: Iterable[Mapping[str, Any]], found: Iterable[Mapping[str, Any]]) -> str:
    """How rows differ from those expected, in whatever order they are; empty where they do not."""
    wanted, held = Counter(map(_comparable, expected)), Counter(map(_comparable, found))
    missing, extra = list((wanted - held).elements()), list((held - wanted).elements())
    if not missing and not extra:
        return ""
    both = (("missing", missing), ("extra", extra))
    shown = [f"{what}: {dict(rows[0])}" for what, rows in both if rows]
    return f"{len(missing)} rows are missing, {len(extra)} too many, such as {'; '.join(shown)}"


def _comparable(row: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    def plain(value: Any) -> Any:
        return value.astimezone(UTC) if isinstance(value, datetime) else value

    return tuple(sorted((name, repr(plain(value))) for name, value in row.items()))


def _logs(blocks: Iterable[Block]) -> Iterator[tuple[Row, Log]]:
    """Every log with its place."""
    for block in blocks:
        for index, executed in enumerate(block.transactions):
            place = _transaction(block, index, executed)
            for log, log_index in zip(executed.logs, executed.log_indexes, strict=True):
                yield {**place, "log_index": log_index}, log


def _transaction(block: Block, index: int, executed: Executed) -> Row:
    return {
        **_place(block),
        "transaction_hash": executed.hash,
        "transaction_index": index,
    }


def _untraced(block: Block) -> Block:
    return replace(
        block, transactions=tuple(replace(each, calls=()) for each in block.transactions)
    )


def _place(block: Block) -> Row:
    return {
        "block_number": block.number,
        "block_hash": block.hash,
        "block_timestamp": datetime.fromtimestamp(block.header.timestamp, UTC),
    }


def _int(word: bytes) -> int:
    return int.from_bytes(word, "big")
