/* A record of a batch as Kafka's protocol has it (version 2, KIP-98), the bytearray of a batch, and the hash of a key. */
#ifndef RAYLOG_RECORD_H
#define RAYLOG_RECORD_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

enum { GROWS_FROM_BYTES = 256 };

static inline size_t varint_size(int64_t number)
{
    uint64_t zigzag = ((uint64_t)number << 1) ^ (uint64_t)(number >> 63);
    size_t size = 1;
    while (zigzag > 0x7F) {
        zigzag >>= 7;
        size += 1;
    }
    return size;
}

static inline uint8_t *put_varint(uint8_t *at, int64_t number)
{
    uint64_t zigzag = ((uint64_t)number << 1) ^ (uint64_t)(number >> 63);
    while (zigzag > 0x7F) {
        *at++ = (uint8_t)(zigzag | 0x80);
        zigzag >>= 7;
    }
    *at++ = (uint8_t)zigzag;
    return at;
}

typedef struct {
    const uint8_t *data; /* NULL: null */
    Py_ssize_t size;
} Field;

static inline size_t field_size(Field field)
{
    return field.data == NULL ? 1 : varint_size(field.size) + (size_t)field.size;
}

static inline uint8_t *put_field(uint8_t *at, Field field)
{
    if (field.data == NULL) {
        *at++ = 1;
        return at;
    }
    at = put_varint(at, field.size);
    memcpy(at, field.data, (size_t)field.size);
    return at + field.size;
}

/* The size of a record without its length, and the record at `at`. `tail` are its encoded headers. */
static inline size_t record_size(int64_t timestamp_delta, int64_t offset_delta, Field key, Field value, Field tail)
{
    return 1 + varint_size(timestamp_delta) + varint_size(offset_delta) + field_size(key) + field_size(value) +
           (tail.size == 0 ? 1 : (size_t)tail.size);
}

static inline uint8_t *put_record(uint8_t *at, size_t size, int64_t timestamp_delta, int64_t offset_delta, Field key, Field value,
                           Field tail)
{
    at = put_varint(at, (int64_t)size);
    *at++ = 0;
    at = put_varint(at, timestamp_delta);
    at = put_varint(at, offset_delta);
    at = put_field(at, key);
    at = put_field(at, value);
    if (tail.size == 0) {
        *at++ = 0;
        return at;
    }
    memcpy(at, tail.data, (size_t)tail.size);
    return at + tail.size;
}

/* Give the bytearray another size. It keeps its memory, and grows to twice what it needs: by an eighth, as bytearrays
   do, a batch would be copied several times. */
static inline int resize(PyObject *body, Py_ssize_t size)
{
    PyByteArrayObject *bytes = (PyByteArrayObject *)body;

    if (bytes->ob_exports > 0) {
        PyErr_SetString(PyExc_BufferError, "the batch is in use");
        return -1;
    }
    if (size >= bytes->ob_alloc - (bytes->ob_start - bytes->ob_bytes) && size > GROWS_FROM_BYTES &&
        PyByteArray_Resize(body, 2 * size - 8) < 0)
        return -1;
    if (size >= bytes->ob_alloc - (bytes->ob_start - bytes->ob_bytes))
        return PyByteArray_Resize(body, size);
    Py_SET_SIZE(bytes, size);
    bytes->ob_start[size] = 0;
    return 0;
}

/* murmur2 of a key: see record_encoding.murmur2. */
static inline uint32_t hash_of(const uint8_t *data, Py_ssize_t size)
{
    const uint32_t multiplier = 0x5BD1E995;
    uint32_t hashed = 0x9747B28C ^ (uint32_t)size;
    Py_ssize_t at = 0;
    for (; at + 4 <= size; at += 4) {
        uint32_t word =
            (uint32_t)data[at] | (uint32_t)data[at + 1] << 8 | (uint32_t)data[at + 2] << 16 | (uint32_t)data[at + 3] << 24;
        word *= multiplier;
        word = (word ^ word >> 24) * multiplier;
        hashed = (hashed * multiplier) ^ word;
    }
    if (at < size) {
        uint32_t word = 0;
        for (Py_ssize_t index = size - 1; index >= at; index--)
            word = word << 8 | data[index];
        hashed = (hashed ^ word) * multiplier;
    }
    hashed = (hashed ^ hashed >> 13) * multiplier;
    return hashed ^ hashed >> 15;
}

#endif
