"""safetensors and GGUF files read and written with nothing but the standard library."""
import json
import pathlib
import struct

GGML = {"F32": (0, 1, 4), "F16": (1, 1, 2), "BF16": (30, 1, 2), "Q4_0": (2, 32, 18), "Q8_0": (8, 32, 34),
        "Q4_K": (12, 256, 144), "Q6_K": (14, 256, 210), "I64": (27, 1, 8)}
TYPE_OF = {number: (name, elements, size) for name, (number, elements, size) in GGML.items()}


def read_safetensors(path):
    """{name: (dtype, shape, bytes)}"""
    data = pathlib.Path(path).read_bytes()
    n = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + n])
    header.pop("__metadata__", None)
    return {k: (v["dtype"], v["shape"], data[8 + n + v["data_offsets"][0]:8 + n + v["data_offsets"][1]])
            for k, v in header.items()}


def write_safetensors(path, tensors, metadata=None):
    header, offset = ({"__metadata__": metadata} if metadata else {}), 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [offset, offset + len(data)]}
        offset += len(data)
    text = json.dumps(header).encode()
    pathlib.Path(path).write_bytes(struct.pack("<Q", len(text)) + text + b"".join(d for _, _, d in tensors.values()))


def text(s):
    return struct.pack("<Q", len(s.encode())) + s.encode()


def write_gguf(path, tensors, metadata):
    """metadata: texts and u32 numbers."""
    out = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(metadata))
    for key, value in metadata.items():
        out += text(key) + (struct.pack("<I", 8) + text(value) if isinstance(value, str) else struct.pack("<II", 4, value))
    data = b""
    for name, (dtype, shape, raw) in tensors.items():
        out += text(name) + struct.pack("<I", len(shape)) + b"".join(struct.pack("<Q", s) for s in reversed(shape))
        out += struct.pack("<IQ", GGML[dtype][0], len(data))
        data += raw + bytes(-len(raw) % 32)
    pathlib.Path(path).write_bytes(out + bytes(-len(out) % 32) + data)


def read_gguf(path):
    """(metadata, {name: (type, shape, bytes)}) of a file whose metadata are texts and u32 numbers."""
    data, at = pathlib.Path(path).read_bytes(), 24

    def take(form):
        nonlocal at
        value = struct.unpack_from(form, data, at)[0]
        at += struct.calcsize(form)
        return value

    def take_text():
        nonlocal at
        n = take("<Q")
        at += n
        return data[at - n:at].decode()

    assert data[:4] == b"GGUF" and struct.unpack_from("<I", data, 4)[0] == 3
    count, pairs = struct.unpack_from("<QQ", data, 8)
    metadata, infos = {}, []
    for _ in range(pairs):
        key = take_text()
        metadata[key] = take_text() if take("<I") == 8 else take("<I")
    for _ in range(count):
        name = take_text()
        shape = [take("<Q") for _ in range(take("<I"))][::-1]
        infos.append((name, shape, take("<I"), take("<Q")))
    start = (at + 31) // 32 * 32
    tensors = {}
    for name, shape, number, offset in infos:
        dtype, elements, size = TYPE_OF[number]
        n = size
        for s in shape:
            n *= s
        assert offset % 32 == 0
        tensors[name] = (dtype, shape, data[start + offset:start + offset + n // elements])
    return metadata, tensors


def bf16_to_floats(raw):
    return [struct.unpack("<f", b"\0\0" + raw[i:i + 2])[0] for i in range(0, len(raw), 2)]


def floats(dtype, raw):
    if dtype == "BF16":
        return bf16_to_floats(raw)
    return list(struct.unpack(f"<{len(raw) // 4}f", raw))
