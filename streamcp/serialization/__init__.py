"""Values to bytes and back; snapshots are data, never code (rule P37).

`registry` knows which classes a job's snapshots may hold, `serializer` writes them,
`deserializer` reads what another attempt wrote, `captured` freezes a value at the right moment.
`stable_hash` tells where a key belongs. The bytes are a pickle stream in which no class and no
function is ever named: an instance is (make, class number, field values), and the meaning of the
numbers is the class table kept in the manifest. Reading is done by `reader`, which knows two
dozen plain opcodes and can neither import nor call anything by name.

Knows nothing of batches, channels, state and files.
"""
