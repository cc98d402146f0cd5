/* The offset map of the log cleaner, and the loops that retain the records it allows: see compaction.py.
 *
 * The table has open addressing with linear probing. A slot is the hash of a key (SipHash-2-4 with 128 bits of result)
 * and the offset of its latest record plus one; zero marks an empty slot. Nothing is allocated, no length is used before
 * it is checked, and no pointer is kept.
 *
 * `add` and `retain` work on the records of one batch. `add_batches` and `retain_batches` work on as many batches of a
 * buffer as they can, and stop at the first that is not plain, for Python to look at: it is compressed, has a marker,
 * is damaged, or is the last one of the buffer.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

enum { DONE, FULL, MALFORMED };
enum { RECORD_BYTES_MIN = 6, VARINT_BYTES_MAX = 10, RELEASE_GIL_BYTES = 1 << 16 };
enum { WINDOW = 16 }; /* records whose slots are fetched at once */
enum { GROWTH_BYTES_MAX = 2 * VARINT_BYTES_MAX }; /* by which a record can grow when its timestamp delta changes */
enum {
    LENGTH_AT = 8, MAGIC_AT = 16, CRC_AT = 17, ATTRIBUTES_AT = 21, LAST_OFFSET_DELTA_AT = 23, BASE_TIMESTAMP_AT = 27,
    MAX_TIMESTAMP_AT = 35, COUNT_AT = 57, HEADER_BYTES = 61, LOG_OVERHEAD = 12, MAGIC = 2
};
enum { CODEC_MASK = 0x07, LOG_APPEND_TIME_BIT = 0x08, TRANSACTIONAL_BIT = 0x10, CONTROL_BIT = 0x20, HORIZON_BIT = 0x40 };

typedef struct {
    uint64_t hash[2];
    int64_t offset_plus_one;
} slot_t;

typedef struct {
    const uint8_t *start, *body, *timestamp_at, *offset_at, *end; /* body: after the length */
    int64_t timestamp_delta, offset_delta, value_length;
    const uint8_t *key;
    int64_t key_length;
    uint64_t hash[2]; /* of the key, if there is one */
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
static slot_t *find(const table_t *table, const record_t *record)
{
    uint64_t number = record->hash[0] % table->count;
    for (;;) {
        slot_t *slot = &table->slots[number];
        if (!slot->offset_plus_one || (slot->hash[0] == record->hash[0] && slot->hash[1] == record->hash[1]))
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

/* Reads up to WINDOW records, and lets the memory fetch the slots of all their keys at once: each lookup would wait for
 * its own otherwise. Returns how many records are well-formed. */
static int read_window(const table_t *table, const uint8_t *at, const uint8_t *end, int64_t count, record_t *window)
{
    int number = 0;

    for (; number < WINDOW && number < count; number++, at = window->end, window++) {
        if (!read_record(at, end, window))
            break;
        if (window->key_length >= 0) {
            hash_key(table->secret, window->key, (size_t)window->key_length, window->hash);
            __builtin_prefetch(&table->slots[window->hash[0] % table->count]);
        }
    }
    return number;
}

static int64_t offset_of(const record_t *record, int64_t base_offset)
{
    return (int64_t)((uint64_t)base_offset + (uint64_t)record->offset_delta);
}

static int add_keys(const table_t *table, int64_t *used, int64_t used_max, const uint8_t *at, const uint8_t *end,
                    int64_t base_offset, int64_t count, int64_t first)
{
    record_t window[WINDOW];

    while (count > 0) {
        const int read = read_window(table, at, end, count, window);
        for (const record_t *record = window; record < window + read; record++) {
            const int64_t offset = offset_of(record, base_offset);
            if (record->key_length < 0 || offset < first)
                continue;
            slot_t *slot = find(table, record);
            if (!slot->offset_plus_one) {
                if (*used >= used_max)
                    return FULL;
                ++*used;
                memcpy(slot->hash, record->hash, sizeof slot->hash);
            }
            slot->offset_plus_one = offset + 1;
        }
        if (read < WINDOW && read < count)
            return MALFORMED;
        at = window[read - 1].end;
        count -= read;
    }
    return at == end ? DONE : MALFORMED;
}

typedef struct {
    int64_t kept, tombstones, largest;
    uint8_t *end;
} retained_t;

/* Writes the record with its timestamp delta changed by `shift`; returns the end, and NULL if the delta overflows. */
static uint8_t *copy_record(const record_t *record, int64_t shift, uint8_t *out)
{
    const uint8_t *rest = record->start;
    uint8_t timestamp[VARINT_BYTES_MAX];

    if (shift) {
        int64_t shifted;
        if (__builtin_add_overflow(record->timestamp_delta, shift, &shifted))
            return NULL;
        const int64_t size = write_varint(timestamp, shifted) - timestamp;
        out = write_varint(out, record->end - record->body + size - (record->offset_at - record->timestamp_at));
        *out++ = *record->body;
        memcpy(out, timestamp, (size_t)size);
        out += size;
        rest = record->offset_at;
    }
    memcpy(out, rest, (size_t)(record->end - rest));
    return out + (record->end - rest);
}

static int retain_records(const table_t *table, const uint8_t *at, const uint8_t *end, int64_t base_offset,
                          int64_t count, int64_t latest, int keep_tombstones, int64_t shift, retained_t *retained)
{
    record_t window[WINDOW];

    while (count > 0) {
        const int read = read_window(table, at, end, count, window);
        for (const record_t *record = window; record < window + read; record++) {
            const int64_t offset = offset_of(record, base_offset);
            if (offset <= latest) {
                if (record->key_length < 0 || offset + 1 < find(table, record)->offset_plus_one)
                    continue;
                if (record->value_length < 0 && !keep_tombstones)
                    continue;
            }
            retained->kept++;
            retained->tombstones += record->value_length < 0;
            if (record->timestamp_delta > retained->largest)
                retained->largest = record->timestamp_delta;
            uint8_t *const out = copy_record(record, shift, retained->end);
            if (out == NULL)
                return MALFORMED;
            retained->end = out;
        }
        if (read < WINDOW && read < count)
            return MALFORMED;
        at = window[read - 1].end;
        count -= read;
    }
    return at == end ? DONE : MALFORMED;
}

static uint64_t get(const uint8_t *at, int bytes)
{
    uint64_t number = 0;
    while (bytes-- > 0)
        number = number << 8 | *at++;
    return number;
}

static void put(uint8_t *at, int bytes, uint64_t number)
{
    for (; bytes-- > 0; number >>= 8)
        at[bytes] = (uint8_t)number;
}

/* CRC-32C, by the instruction of x86 where there is one. */
static uint32_t crc_table[256];

static void make_crc_table(void)
{
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78 : 0);
        crc_table[byte] = crc;
    }
}

static uint32_t crc32c_by_table(const uint8_t *at, const uint8_t *end)
{
    uint32_t crc = UINT32_MAX;
    while (at != end)
        crc = crc >> 8 ^ crc_table[(crc ^ *at++) & 0xFF];
    return ~crc;
}

#if defined(__x86_64__) && defined(__GNUC__)
__attribute__((target("sse4.2"))) static uint32_t crc32c_by_instruction(const uint8_t *at, const uint8_t *end)
{
    uint64_t crc = UINT32_MAX, word;
    for (; end - at >= 8; at += 8) {
        memcpy(&word, at, 8);
        crc = __builtin_ia32_crc32di(crc, word);
    }
    while (at != end)
        crc = __builtin_ia32_crc32qi((uint32_t)crc, *at++);
    return ~(uint32_t)crc;
}
#define HAS_INSTRUCTION __builtin_cpu_supports("sse4.2")
#else
#define crc32c_by_instruction crc32c_by_table
#define HAS_INSTRUCTION 0
#endif

static uint32_t (*crc32c)(const uint8_t *at, const uint8_t *end) = crc32c_by_table;

typedef struct {
    const uint8_t *start, *end;
    int64_t base_offset, last_offset, count, base_timestamp;
    unsigned attributes;
} batch_t;

typedef struct {
    long long base_offset, next_offset; /* of a segment */
} span_t;

/* Reads the batch at `at`; returns whether it is whole, plain and intact, and others follow it before `end`. */
static int read_batch(const uint8_t *at, const uint8_t *end, span_t span, int may_be_transactional, batch_t *batch)
{
    if (end - at <= HEADER_BYTES)
        return 0;
    const int64_t size = (int64_t)(int32_t)get(at + LENGTH_AT, 4) + LOG_OVERHEAD;
    if (at[MAGIC_AT] != MAGIC || size < HEADER_BYTES || size >= end - at)
        return 0;
    batch->start = at;
    batch->end = at + size;
    batch->attributes = (unsigned)get(at + ATTRIBUTES_AT, 2);
    batch->base_offset = (int64_t)get(at, 8);
    const int64_t delta = (int32_t)get(at + LAST_OFFSET_DELTA_AT, 4);
    batch->base_timestamp = (int64_t)get(at + BASE_TIMESTAMP_AT, 8);
    batch->count = (int32_t)get(at + COUNT_AT, 4);
    if (batch->attributes & (CODEC_MASK | CONTROL_BIT) || (batch->attributes & TRANSACTIONAL_BIT && !may_be_transactional))
        return 0;
    if (batch->base_offset < span.base_offset || batch->base_offset >= span.next_offset || delta < 0 ||
        delta >= span.next_offset - batch->base_offset || batch->count < 0)
        return 0;
    batch->last_offset = batch->base_offset + delta;
    return crc32c(at + ATTRIBUTES_AT, batch->end) == (uint32_t)get(at + CRC_AT, 4);
}

/* Writes what remains of the batch to `out`, as `compacted` does. Returns its size, and -1 for Python to do so. */
static int64_t compact_batch(const table_t *table, const batch_t *batch, int64_t latest, int64_t now_ms,
                             int64_t horizon_ms, uint8_t *out, const uint8_t *out_end)
{
    const uint8_t *records = batch->start + HEADER_BYTES;
    const int has_horizon = (batch->attributes & HORIZON_BIT) != 0;
    retained_t retained = {0, 0, INT64_MIN, out + HEADER_BYTES};
    int64_t shift = 0, base_timestamp = batch->base_timestamp, largest;

    if (out_end - out < batch->end - batch->start)
        return -1;
    if (retain_records(table, records, batch->end, batch->base_offset, batch->count, latest,
                       !has_horizon || now_ms < base_timestamp, 0, &retained) != DONE)
        return -1;
    if (!retained.kept)
        return 0;
    memcpy(out, batch->start, HEADER_BYTES);
    if (retained.tombstones && !has_horizon) {
        if (__builtin_sub_overflow(base_timestamp, horizon_ms, &shift))
            return -1;
        if (shift) {
            if (out_end - out < batch->end - batch->start + batch->count * GROWTH_BYTES_MAX)
                return -1;
            retained = (retained_t){0, 0, INT64_MIN, out + HEADER_BYTES};
            if (retain_records(table, records, batch->end, batch->base_offset, batch->count, latest, 1, shift,
                               &retained) != DONE)
                return -1;
        }
        base_timestamp = horizon_ms;
        put(out + ATTRIBUTES_AT, 2, batch->attributes | HORIZON_BIT);
        put(out + BASE_TIMESTAMP_AT, 8, (uint64_t)base_timestamp);
    } else if (retained.kept == batch->count) {
        return batch->end - batch->start;
    }
    if (!(batch->attributes & LOG_APPEND_TIME_BIT)) {
        if (__builtin_add_overflow(retained.largest, shift, &largest) ||
            __builtin_add_overflow(base_timestamp, largest, &largest))
            return -1;
        put(out + MAX_TIMESTAMP_AT, 8, (uint64_t)largest);
    }
    put(out + LENGTH_AT, 4, (uint64_t)(retained.end - out - LOG_OVERHEAD));
    put(out + COUNT_AT, 4, (uint64_t)retained.kept);
    put(out + CRC_AT, 4, crc32c(out + ATTRIBUTES_AT, retained.end));
    return retained.end - out;
}

static int contains(const int64_t *sorted, int64_t count, int64_t wanted)
{
    while (count > 0) {
        const int64_t half = count / 2;
        if (sorted[half] == wanted)
            return 1;
        if (sorted[half] < wanted) {
            sorted += half + 1;
            count -= half + 1;
        } else {
            count = half;
        }
    }
    return 0;
}

typedef struct {
    int64_t position, last_offset, max_timestamp;
} place_t;

enum { PLACES_LEFT_MIN = 4 }; /* by one batch, and at the end */

typedef struct {
    place_t *places;
    int64_t count, count_max, since, interval;
    place_t largest, last; /* not among the places yet if their last offset is not negative */
} placed_t;

/* Adds a batch to the places that the indexes need: those with an index entry, the first, the last, and the one with
 * the largest timestamp before each. */
static void add_place(placed_t *placed, place_t place, int64_t size)
{
    if (placed->since > placed->interval || !placed->count) {
        if (placed->largest.last_offset >= 0 && placed->largest.max_timestamp >= place.max_timestamp)
            placed->places[placed->count++] = placed->largest;
        placed->places[placed->count++] = place;
        placed->largest.last_offset = placed->last.last_offset = -1;
        if (placed->since > placed->interval)
            placed->since = 0;
    } else {
        if (placed->largest.last_offset < 0 || place.max_timestamp > placed->largest.max_timestamp)
            placed->largest = place;
        placed->last = place;
    }
    placed->since += size;
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

static int is_within(Py_ssize_t position, const Py_buffer *data)
{
    if (position >= 0 && position <= data->len)
        return 1;
    PyErr_SetString(PyExc_ValueError, "the position is not within the data");
    return 0;
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
        const long long growth = shift ? GROWTH_BYTES_MAX : 0;
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

static PyObject *add_batches(PyObject *module, PyObject *arguments)
{
    Py_buffer slots, secret, data;
    Py_ssize_t position;
    long long used, used_max, first;
    span_t span;
    int may_be_transactional;
    table_t table;
    PyObject *result = NULL;

    (void)module;
    if (!PyArg_ParseTuple(arguments, "w*y*LLy*nLLLp", &slots, &secret, &used, &used_max, &data, &position,
                          &span.base_offset, &span.next_offset, &first, &may_be_transactional))
        return NULL;
    if (is_table(&slots, &secret, &table) && is_within(position, &data)) {
        if (used < 0 || used_max >= (long long)table.count) {
            PyErr_SetString(PyExc_ValueError, "the table needs an empty slot");
        } else {
            const uint8_t *at = (const uint8_t *)data.buf + position, *end = (const uint8_t *)data.buf + data.len;
            int64_t now_used = used, last_offset = -1;
            batch_t batch;
            Py_BEGIN_ALLOW_THREADS
            while (read_batch(at, end, span, may_be_transactional, &batch)) {
                if (add_keys(&table, &now_used, used_max, at + HEADER_BYTES, batch.end, batch.base_offset, batch.count,
                             first) != DONE)
                    break;
                if (batch.last_offset > last_offset)
                    last_offset = batch.last_offset;
                at = batch.end;
            }
            Py_END_ALLOW_THREADS
            result = Py_BuildValue("nLL", (Py_ssize_t)(at - (const uint8_t *)data.buf), (long long)now_used,
                                   (long long)last_offset);
        }
    }
    PyBuffer_Release(&data);
    PyBuffer_Release(&secret);
    PyBuffer_Release(&slots);
    return result;
}

static PyObject *retain_batches(PyObject *module, PyObject *arguments)
{
    Py_buffer slots, secret, data, needed, out, places;
    Py_ssize_t position;
    long long latest, now_ms, horizon_ms, interval, since;
    span_t span;
    table_t table;
    PyObject *result = NULL;

    (void)module;
    if (!PyArg_ParseTuple(arguments, "y*y*y*nLLLLLy*LLw*w*", &slots, &secret, &data, &position, &span.base_offset,
                          &span.next_offset, &latest, &now_ms, &horizon_ms, &needed, &interval, &since, &out, &places))
        return NULL;
    if (is_table(&slots, &secret, &table) && is_within(position, &data)) {
        if ((needed.len && (uintptr_t)needed.buf % sizeof(int64_t)) || (uintptr_t)places.buf % sizeof(int64_t)) {
            PyErr_SetString(PyExc_ValueError, "the offsets or the places are not aligned");
        } else {
            const uint8_t *at = (const uint8_t *)data.buf + position, *end = (const uint8_t *)data.buf + data.len;
            uint8_t *const out_start = out.buf, *const out_end = out_start + out.len, *to = out_start;
            placed_t placed = {places.buf, 0, places.len / (Py_ssize_t)sizeof(place_t), since, interval,
                               {0, -1, 0}, {0, -1, 0}};
            batch_t batch;
            Py_BEGIN_ALLOW_THREADS
            while (placed.count + PLACES_LEFT_MIN <= placed.count_max && read_batch(at, end, span, 0, &batch)) {
                const int64_t size = compact_batch(&table, &batch, latest, now_ms, horizon_ms, to, out_end);
                if (size < 0 ||
                    (!size && contains(needed.buf, needed.len / (Py_ssize_t)sizeof(int64_t), batch.last_offset)))
                    break;
                if (size) {
                    const int64_t largest = (int64_t)get(to + MAX_TIMESTAMP_AT, 8);
                    add_place(&placed, (place_t){to - out_start, batch.last_offset, largest}, size);
                    to += size;
                }
                at = batch.end;
            }
            if (placed.largest.last_offset >= 0 && placed.largest.position < placed.last.position)
                placed.places[placed.count++] = placed.largest;
            if (placed.last.last_offset >= 0)
                placed.places[placed.count++] = placed.last;
            Py_END_ALLOW_THREADS
            result = Py_BuildValue("nnnL", (Py_ssize_t)(at - (const uint8_t *)data.buf), (Py_ssize_t)(to - out_start),
                                   (Py_ssize_t)placed.count, (long long)placed.since);
        }
    }
    PyBuffer_Release(&places);
    PyBuffer_Release(&out);
    PyBuffer_Release(&needed);
    PyBuffer_Release(&data);
    PyBuffer_Release(&secret);
    PyBuffer_Release(&slots);
    return result;
}

static PyMethodDef functions[] = {
    {"add", add, METH_VARARGS, "add(slots, secret, used, used_max, records, base_offset, count, first) -> (event, used)"},
    {"retain", retain, METH_VARARGS,
     "retain(slots, secret, records, base_offset, count, latest, keep_tombstones, shift, out) -> (event, kept, "
     "tombstones, largest timestamp delta, size)"},
    {"add_batches", add_batches, METH_VARARGS,
     "add_batches(slots, secret, used, used_max, data, position, base_offset, next_offset, first, "
     "may_be_transactional) -> (position, used, last offset)"},
    {"retain_batches", retain_batches, METH_VARARGS,
     "retain_batches(slots, secret, data, position, base_offset, next_offset, latest, now_ms, horizon_ms, needed, "
     "interval, since, out, places) -> (position, size, number of places, since)"},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_compaction", NULL, 0, functions, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__compaction(void)
{
    make_crc_table();
    if (HAS_INSTRUCTION)
        crc32c = crc32c_by_instruction;
    return PyModuleDef_Init(&definition);
}
