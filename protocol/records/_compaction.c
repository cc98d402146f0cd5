/* The offset map of the log cleaner, and the loop that retains the records it allows: see compaction.py.
 *
 * The table has open addressing with linear probing. A slot is the hash of a key (SipHash-2-4 with 128 bits of result)
 * and the offset of its latest record plus one; zero marks an empty slot. Nothing is allocated, no length is used before
 * it is checked, and no pointer is kept.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

enum { DONE, FULL, MALFORMED };
enum { RECORD_BYTES_MIN = 6, VARINT_BYTES_MAX = 10, RELEASE_GIL_BYTES = 1 << 16 };

typedef struct {
    uint64_t hash[2];
    int64_t offset_plus_one;
} slot_t;

typedef struct {
    const uint8_t *start, *body, *timestamp_at, *offset_at, *end; /* body: after the length */
    int64_t timestamp_delta, offset_delta, value_length;
    const uint8_t *key;
    int64_t key_length;
} record_t;

typedef struct {
    slot_t *slots;
    uint64_t count, secret[2];
} table_t;

#define ROTATE(x, bits) (((x) << (bits)) | ((x) >> (64 - (bits))))
#define ROUND                                                                                                          \
    do {                                                                                                               \
        v0 += v1; v1 = ROTATE(v1, 13); v1 ^= v0; v0 = ROTATE(v0, 32);                                                  \
        v2 += v3; v3 = ROTATE(v3, 16); v3 ^= v2;                                                                       \
        v0 += v3; v3 = ROTATE(v3, 21); v3 ^= v0;                                                                       \
        v2 += v1; v1 = ROTATE(v1, 17); v1 ^= v2; v2 = ROTATE(v2, 32);                                                  \
    } while (0)

static void hash_key(const uint64_t secret[2], const uint8_t *key, size_t length, uint64_t hash[2])
{
    uint64_t v0 = secret[0] ^ 0x736f6d6570736575, v1 = secret[1] ^ 0x646f72616e646f6d ^ 0xee;
    uint64_t v2 = secret[0] ^ 0x6c7967656e657261, v3 = secret[1] ^ 0x7465646279746573;
    uint64_t word, last = (uint64_t)length << 56;
    const uint8_t *end = key + (length & ~(size_t)7);

    for (; key != end; key += 8) {
        memcpy(&word, key, 8);
        v3 ^= word;
        ROUND; ROUND;
        v0 ^= word;
    }
    for (size_t rest = length & 7; rest > 0; rest--)
        last |= (uint64_t)key[rest - 1] << 8 * (rest - 1);
    v3 ^= last;
    ROUND; ROUND;
    v0 ^= last;
    v2 ^= 0xee;
    ROUND; ROUND; ROUND; ROUND;
    hash[0] = v0 ^ v1 ^ v2 ^ v3;
    v1 ^= 0xdd;
    ROUND; ROUND; ROUND; ROUND;
    hash[1] = v0 ^ v1 ^ v2 ^ v3;
}

/* The slot of the key, or the empty one where it belongs. There is always an empty one. */
static slot_t *find(const table_t *table, const record_t *record, uint64_t hash[2])
{
    hash_key(table->secret, record->key, (size_t)record->key_length, hash);
    uint64_t number = hash[0] % table->count;
    for (;;) {
        slot_t *slot = &table->slots[number];
        if (!slot->offset_plus_one || (slot->hash[0] == hash[0] && slot->hash[1] == hash[1]))
            return slot;
        if (++number == table->count)
            number = 0;
    }
}

static const uint8_t *read_varint(const uint8_t *at, const uint8_t *end, int64_t *value)
{
    uint64_t number = 0;
    for (int shift = 0; shift < 7 * VARINT_BYTES_MAX && at < end; shift += 7) {
        const uint8_t byte = *at++;
        number |= (uint64_t)(byte & 0x7F) << shift;
        if (byte < 0x80) {
            *value = (int64_t)(number >> 1) ^ -(int64_t)(number & 1);
            return at;
        }
    }
    return NULL;
}

static uint8_t *write_varint(uint8_t *at, int64_t value)
{
    uint64_t number = ((uint64_t)value << 1) ^ (uint64_t)(value >> 63);
    for (; number > 0x7F; number >>= 7)
        *at++ = (uint8_t)(number | 0x80);
    *at++ = (uint8_t)number;
    return at;
}

/* Reads a record up to the length of its value; returns whether that much of it is well-formed. */
static int read_record(const uint8_t *at, const uint8_t *end, record_t *record)
{
    int64_t length;

    record->start = at;
    at = read_varint(at, end, &length);
    if (at == NULL || length < RECORD_BYTES_MIN || length > end - at)
        return 0;
    record->body = at;
    record->end = end = at + length;
    record->timestamp_at = at + 1; /* after the attributes, unused */
    record->offset_at = at = read_varint(record->timestamp_at, end, &record->timestamp_delta);
    if (at == NULL || (at = read_varint(at, end, &record->offset_delta)) == NULL || record->offset_delta < 0 ||
        record->offset_delta > INT32_MAX)
        return 0;
    at = read_varint(at, end, &record->key_length);
    if (at == NULL || record->key_length < -1 || record->key_length > end - at)
        return 0;
    record->key = at;
    if (record->key_length > 0)
        at += record->key_length;
    at = read_varint(at, end, &record->value_length);
    return at != NULL && record->value_length >= -1 && record->value_length <= end - at;
}

static int add_keys(const table_t *table, int64_t *used, int64_t used_max, const uint8_t *at, const uint8_t *end,
                    int64_t base_offset, int64_t count, int64_t first)
{
    record_t record;
    uint64_t hash[2];

    for (; count > 0; count--, at = record.end) {
        if (!read_record(at, end, &record))
            return MALFORMED;
        const int64_t offset = base_offset + record.offset_delta;
        if (record.key_length < 0 || offset < first)
            continue;
        slot_t *slot = find(table, &record, hash);
        if (!slot->offset_plus_one) {
            if (*used >= used_max)
                return FULL;
            ++*used;
            memcpy(slot->hash, hash, sizeof hash);
        }
        slot->offset_plus_one = offset + 1;
    }
    return at == end ? DONE : MALFORMED;
}

typedef struct {
    int64_t kept, tombstones, largest;
    uint8_t *end;
} retained_t;

static int retain_records(const table_t *table, const uint8_t *at, const uint8_t *end, int64_t base_offset,
                          int64_t count, int64_t latest, int keep_tombstones, int64_t shift, retained_t *retained)
{
    record_t record;
    uint64_t hash[2];
    uint8_t timestamp[VARINT_BYTES_MAX];

    for (; count > 0; count--, at = record.end) {
        if (!read_record(at, end, &record))
            return MALFORMED;
        const int64_t offset = base_offset + record.offset_delta;
        if (offset <= latest) {
            if (record.key_length < 0 || offset + 1 < find(table, &record, hash)->offset_plus_one)
                continue;
            if (record.value_length < 0 && !keep_tombstones)
                continue;
        }
        retained->kept++;
        retained->tombstones += record.value_length < 0;
        if (record.timestamp_delta > retained->largest)
            retained->largest = record.timestamp_delta;
        uint8_t *out = retained->end;
        const uint8_t *rest = record.start;
        if (shift) {
            const int64_t shifted = (int64_t)((uint64_t)record.timestamp_delta + (uint64_t)shift);
            const int64_t size = write_varint(timestamp, shifted) - timestamp;
            out = write_varint(out, record.end - record.body + size - (record.offset_at - record.timestamp_at));
            *out++ = *record.body;
            memcpy(out, timestamp, (size_t)size);
            out += size;
            rest = record.offset_at;
        }
        memcpy(out, rest, (size_t)(record.end - rest));
        retained->end = out + (record.end - rest);
    }
    return at == end ? DONE : MALFORMED;
}

/* Returns whether `table` can be filled from the two buffers; otherwise an exception is set. */
static int is_table(const Py_buffer *slots, const Py_buffer *secret, table_t *table)
{
    if (slots->len < (Py_ssize_t)sizeof(slot_t) || slots->len % (Py_ssize_t)sizeof(slot_t) ||
        (uintptr_t)slots->buf % sizeof(int64_t) || secret->len != sizeof table->secret) {
        PyErr_SetString(PyExc_ValueError, "the table is not an aligned array of slots, or its secret has not 16 bytes");
        return 0;
    }
    table->slots = slots->buf;
    table->count = (uint64_t)slots->len / sizeof(slot_t);
    memcpy(table->secret, secret->buf, sizeof table->secret);
    return 1;
}

static PyObject *add(PyObject *module, PyObject *arguments)
{
    Py_buffer slots, secret, records;
    long long used, used_max, base_offset, count, first;
    table_t table;
    PyObject *result = NULL;

    (void)module;
    if (!PyArg_ParseTuple(arguments, "w*y*LLy*LLL", &slots, &secret, &used, &used_max, &records, &base_offset, &count,
                          &first))
        return NULL;
    if (is_table(&slots, &secret, &table)) {
        if (used < 0 || used_max >= (long long)table.count) {
            PyErr_SetString(PyExc_ValueError, "the table needs an empty slot");
        } else {
            int64_t now_used = used;
            const uint8_t *data = records.buf;
            int event;
            if (records.len < RELEASE_GIL_BYTES) {
                event = add_keys(&table, &now_used, used_max, data, data + records.len, base_offset, count, first);
            } else {
                Py_BEGIN_ALLOW_THREADS
                event = add_keys(&table, &now_used, used_max, data, data + records.len, base_offset, count, first);
                Py_END_ALLOW_THREADS
            }
            result = Py_BuildValue("iL", event, (long long)now_used);
        }
    }
    PyBuffer_Release(&records);
    PyBuffer_Release(&secret);
    PyBuffer_Release(&slots);
    return result;
}

static PyObject *retain(PyObject *module, PyObject *arguments)
{
    Py_buffer slots, secret, records, out;
    long long base_offset, count, latest, shift;
    int keep_tombstones;
    table_t table;
    PyObject *result = NULL;

    (void)module;
    if (!PyArg_ParseTuple(arguments, "y*y*y*LLLpLw*", &slots, &secret, &records, &base_offset, &count, &latest,
                          &keep_tombstones, &shift, &out))
        return NULL;
    if (is_table(&slots, &secret, &table)) {
        const long long growth = shift ? 2 * VARINT_BYTES_MAX : 0;
        if (count < 0 || count > records.len || out.len < records.len + count * growth) {
            PyErr_SetString(PyExc_ValueError, "the records do not fit the output");
        } else {
            retained_t retained = {0, 0, INT64_MIN, out.buf};
            const uint8_t *data = records.buf;
            int event;
            if (records.len < RELEASE_GIL_BYTES) {
                event = retain_records(&table, data, data + records.len, base_offset, count, latest, keep_tombstones,
                                       shift, &retained);
            } else {
                Py_BEGIN_ALLOW_THREADS
                event = retain_records(&table, data, data + records.len, base_offset, count, latest, keep_tombstones,
                                       shift, &retained);
                Py_END_ALLOW_THREADS
            }
            result = Py_BuildValue("iLLLn", event, (long long)retained.kept, (long long)retained.tombstones,
                                   (long long)retained.largest, (Py_ssize_t)(retained.end - (uint8_t *)out.buf));
        }
    }
    PyBuffer_Release(&out);
    PyBuffer_Release(&records);
    PyBuffer_Release(&secret);
    PyBuffer_Release(&slots);
    return result;
}

static PyMethodDef functions[] = {
    {"add", add, METH_VARARGS, "add(slots, secret, used, used_max, records, base_offset, count, first) -> (event, used)"},
    {"retain", retain, METH_VARARGS,
     "retain(slots, secret, records, base_offset, count, latest, keep_tombstones, shift, out) -> (event, kept, "
     "tombstones, largest timestamp delta, size)"},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_compaction", NULL, 0, functions, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__compaction(void)
{
    return PyModuleDef_Init(&definition);
}
