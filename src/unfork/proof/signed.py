"""Owns the way from a transaction's row to the transaction that was signed.

Each type needs other columns. A row whose type does not fit its columns is not merely incomplete:
where another type gives the hash that the row states, the type itself is what is wrong.
"""

from __future__ import annotations

import json
from typing import Any

from unfork.proof import transaction as transactions
from unfork.proof.block import Gap
from unfork.proof.fields import Reader, Row, number, text
from unfork.proof.transaction import Authorization, Transaction

#: The types that can be encoded.
TYPES = range(5)


def transaction(row: Row) -> Transaction | Gap:
    """The transaction of a row, or what stands in its way."""
    stated = row.get("transaction_type")
    read = _read(row, stated)
    if isinstance(read, Transaction):
        if stated != 0 and row.get("access_list") is None and not _hashes(read, row):
            # An absent list is most often an empty one; only the hash can tell.
            return Gap(missing=("access_list",))
        return read
    if not read.broken and row.get("r") is not None:
        for kind in TYPES:
            other = _read(row, kind) if kind != stated else read
            if isinstance(other, Transaction) and _hashes(other, row):
                return Gap(broken=(f"transaction_type is {stated}, its hash is that of {kind}",))
    return read


def _hashes(value: Transaction, row: Row) -> bool:
    return transactions.hash(value) == row.get("hash")


def _read(row: Row, kind: Any) -> Transaction | Gap:
    """The row read as a transaction of type `kind`."""
    if kind is None:
        return Gap(missing=("transaction_type",))
    if kind not in TYPES:
        return Gap(missing=(f"an encoding for transaction_type {kind}",))
    reader = Reader(row)
    access_list, authorization_list = (), ()
    blobs: tuple[bytes, ...] = ()
    if kind >= 1:
        access_list = _list(reader, "access_list", _access, required=False)
    if kind == 3:
        blobs = _list(reader, "blob_versioned_hashes", text, required=True)
    if kind == 4:
        authorization_list = _list(reader, "authorization_list", _authorization, required=True)
    value = Transaction(
        type=kind,
        chain_id=reader.number("chain_id") if kind else reader.optional_number("chain_id"),
        nonce=reader.number("nonce"),
        gas_price=reader.number("gas_price") if kind < 2 else None,
        max_priority_fee_per_gas=reader.number("max_priority_fee_per_gas") if kind > 1 else None,
        max_fee_per_gas=reader.number("max_fee_per_gas") if kind > 1 else None,
        gas=reader.number("gas"),
        to=None if row.get("to_address") is None else reader.text("to_address"),
        value=reader.number("value"),
        input=reader.text("input"),
        access_list=access_list,
        max_fee_per_blob_gas=reader.number("max_fee_per_blob_gas") if kind == 3 else None,
        blob_versioned_hashes=blobs,
        authorization_list=authorization_list,
        v=reader.number("v"),
        r=reader.number("r"),
        s=reader.number("s"),
    )
    if kind == 0 and value.chain_id is not None and value.v >= 35:
        # From EIP-155 on v contains the chain, so that the column repeats what is signed.
        if value.chain_id != (value.v - 35) // 2:
            reader.broken.append(f"chain_id is {value.chain_id}, v says {(value.v - 35) // 2}")
    return reader.gap() or value


def _list(reader: Reader, name: str, item: Any, *, required: bool) -> tuple[Any, ...]:
    """A list column, as values or as JSON text; an item lacks fields, or cannot be read at all."""
    value = reader.row.get(name)
    if value is None:
        if required:
            reader.missing.append(name)
        return ()
    try:
        found = tuple(item(part) for part in (json.loads(value) if type(value) is str else value))
    except KeyError as lacking:
        reader.missing.append(f"{lacking.args[0]} in {name}")
        return ()
    except (ValueError, TypeError, AttributeError):
        found = (None,)
    if None in found:
        reader.broken.append(f"{name} cannot be read")
        return ()
    return found


def _given(entry: dict[str, Any], name: str) -> Any:
    """A field of an entry; KeyError where the node left it out or gave null."""
    value = entry.get(name)
    if value is None:
        raise KeyError(name)
    return value


def _access(entry: dict[str, Any]) -> tuple[bytes, tuple[bytes, ...]] | None:
    address = text(_given(entry, "address"))
    keys = tuple(text(key) for key in _given(entry, "storageKeys"))
    if address is None or None in keys:
        return None
    return address, tuple(key for key in keys if key is not None)


def _authorization(entry: dict[str, Any]) -> Authorization | None:
    address = text(_given(entry, "address"))
    numbers = [number(_given(entry, name)) for name in ("chainId", "nonce", "yParity", "r", "s")]
    if address is None or None in numbers:
        return None
    chain_id, nonce, y_parity, r, s = (value for value in numbers if value is not None)
    return Authorization(
        chain_id=chain_id, address=address, nonce=nonce, y_parity=y_parity, r=r, s=s
    )
