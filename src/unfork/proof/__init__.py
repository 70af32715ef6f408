"""What an EVM block commits to: encodings, hashes and roots, recomputed from plain values. Pure."""
