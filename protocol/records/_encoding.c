/* The loops of record_encoding.py in C: see there. They keep no pointer beyond a call, and read only within the buffers
 * that they are given.
 */
#include "_record.h"

/* `view` is held for anything but bytes and None. */
static int as_field(PyObject *object, Field *field, Py_buffer *view)
{
    static const uint8_t empty[1] = {0};
    field->data = NULL;
    field->size = 0;
    if (object == Py_None)
        return 0;
    if (PyBytes_Check(object)) {
        field->size = PyBytes_GET_SIZE(object);
        field->data = (const uint8_t *)PyBytes_AS_STRING(object);
        return 0;
    }
    if (PyObject_GetBuffer(object, view, PyBUF_SIMPLE) < 0)
        return -1;
    field->size = view->len;
    field->data = view->len ? view->buf : empty;
    return 0;
}

/* Shorten the bytearray to its first bytes, and keep its memory for the next batch. */
static PyObject *shorten(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    (void)module;
    if (count != 2 || !PyByteArray_Check(arguments[0])) {
        PyErr_SetString(PyExc_TypeError, "shorten(bytearray, size)");
        return NULL;
    }
    const Py_ssize_t size = PyLong_AsSsize_t(arguments[1]);
    if (PyErr_Occurred())
        return NULL;
    if (size < 0 || size > PyByteArray_GET_SIZE(arguments[0])) {
        PyErr_SetString(PyExc_ValueError, "the bytearray is shorter");
        return NULL;
    }
    if (resize(arguments[0], size) < 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *append_record(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    Field fields[3];
    Py_buffer views[3] = {{0}, {0}, {0}};
    PyObject *result = NULL;

    (void)module;
    if (count != 6 || !PyByteArray_Check(arguments[0])) {
        PyErr_SetString(PyExc_TypeError, "append_record(bytearray, timestamp_delta, offset_delta, key, value, headers)");
        return NULL;
    }
    PyObject *body = arguments[0];
    const int64_t timestamp_delta = PyLong_AsLongLong(arguments[1]);
    const int64_t offset_delta = PyLong_AsLongLong(arguments[2]);
    if (PyErr_Occurred())
        return NULL;
    for (int index = 0; index < 3; index++)
        if (as_field(arguments[3 + index], &fields[index], &views[index]))
            goto done;
    const size_t size = record_size(timestamp_delta, offset_delta, fields[0], fields[1], fields[2]);
    const Py_ssize_t before = PyByteArray_GET_SIZE(body);
    if (size > INT32_MAX) {
        PyErr_SetString(PyExc_OverflowError, "the record is larger than 2 GiB");
        goto done;
    }
    const Py_ssize_t after = before + (Py_ssize_t)(size + varint_size((int64_t)size));
    if (resize(body, after) < 0)
        goto done;
    put_record((uint8_t *)PyByteArray_AS_STRING(body) + before, size, timestamp_delta, offset_delta, fields[0], fields[1],
               fields[2]);
    result = Py_NewRef(Py_None);
done:
    for (int index = 0; index < 3; index++)
        if (views[index].obj != NULL)
            PyBuffer_Release(&views[index]);
    return result;
}

static PyObject *murmur2(PyObject *module, PyObject *data)
{
    Py_buffer view;

    (void)module;
    if (PyObject_GetBuffer(data, &view, PyBUF_SIMPLE) < 0)
        return NULL;
    const uint32_t hashed = hash_of(view.buf, view.len);
    PyBuffer_Release(&view);
    return PyLong_FromUnsignedLong(hashed);
}

/* A column of bytes: Arrow's validity bits, offsets of 4 or 8 bytes or a fixed width, and the data. */
typedef struct {
    Py_buffer validity, offsets, data;
    Py_ssize_t first; /* the row of the arrays at which the column begins */
    Py_ssize_t width; /* 4 or 8: that of an offset; below 0: that of a value, negated */
} Column;

static void release(Column *column)
{
    PyBuffer_Release(&column->validity);
    PyBuffer_Release(&column->offsets);
    PyBuffer_Release(&column->data);
}

/* `given` is None, for nulls only, or (validity or None, offsets or None, data, first, width). */
static int as_column(PyObject *given, Column *column, Py_ssize_t rows)
{
    memset(column, 0, sizeof *column);
    if (given == Py_None)
        return 0;
    if (!PyArg_ParseTuple(given, "z*z*z*nn", &column->validity, &column->offsets, &column->data, &column->first,
                          &column->width)) {
        memset(column, 0, sizeof *column);
        return -1;
    }
    const Py_ssize_t end = column->first + rows;
    if (column->first < 0 || rows < 0 || (column->validity.buf && column->validity.len < (end + 7) / 8) ||
        (column->width > 0 && column->width != 4 && column->width != 8) ||
        (column->width > 0 && column->offsets.len < (end + 1) * column->width) ||
        (column->width < 0 && column->data.len < end * -column->width)) {
        PyErr_SetString(PyExc_ValueError, "a buffer of the column is too short");
        release(column);
        return -1;
    }
    return 0;
}

/* -1 for offsets that do not lie within the data. */
static inline int field_at(const Column *column, Py_ssize_t row, Field *field)
{
    static const uint8_t empty[1] = {0};
    row += column->first;
    field->data = NULL;
    field->size = 0;
    if (column->width == 0 || (column->validity.buf && !(((const uint8_t *)column->validity.buf)[row >> 3] >> (row & 7) & 1)))
        return 0;
    int64_t begin, end;
    if (column->width == 4) {
        begin = ((const int32_t *)column->offsets.buf)[row];
        end = ((const int32_t *)column->offsets.buf)[row + 1];
    } else if (column->width == 8) {
        begin = ((const int64_t *)column->offsets.buf)[row];
        end = ((const int64_t *)column->offsets.buf)[row + 1];
    } else {
        begin = row * -column->width;
        end = begin - column->width;
    }
    if (begin < 0 || end < begin || end > column->data.len)
        return -1;
    field->size = (Py_ssize_t)(end - begin);
    field->data = field->size ? (const uint8_t *)column->data.buf + begin : empty;
    return 0;
}

typedef struct {
    const Column *keys, *values, *tails;
    const int64_t *order, *timestamps;
    Py_ssize_t rows;
    int64_t base_timestamp;
    Py_ssize_t at; /* the next row */
    int64_t largest;
    Py_ssize_t used;
} Batch;

typedef struct {
    Field key, value, tail;
    int64_t timestamp, delta;
    size_t size;
} Row;

/* Returns -1 for rows and offsets that do not exist, and for 2 GiB and more. */
static inline int read_row(const Batch *batch, Py_ssize_t at, Py_ssize_t start, Row *row)
{
    const Py_ssize_t number = batch->order ? (Py_ssize_t)batch->order[at] : at;
    if (number < 0 || number >= batch->rows || field_at(batch->keys, number, &row->key) ||
        field_at(batch->values, number, &row->value) || field_at(batch->tails, number, &row->tail))
        return -1;
    row->timestamp = batch->timestamps ? batch->timestamps[number] : batch->base_timestamp;
    row->delta = (int64_t)((uint64_t)row->timestamp - (uint64_t)batch->base_timestamp);
    row->size = record_size(row->delta, at - start, row->key, row->value, row->tail);
    return row->size > INT32_MAX ? -1 : 0;
}

static int batch_row_size(const Batch *batch, Py_ssize_t at, Py_ssize_t *size)
{
    Row row;
    if (read_row(batch, at, at, &row))
        return -1;
    *size = (Py_ssize_t)(row.size + varint_size((int64_t)row.size));
    return 0;
}

/* Writes rows from `batch->at` on while they fit; returns whether one is wrong. */
static int encode_rows(Batch *batch, uint8_t *data, Py_ssize_t end, Py_ssize_t room)
{
    const Py_ssize_t start = batch->at;
    for (; batch->at < end; batch->at++) {
        Row row;
        if (read_row(batch, batch->at, start, &row))
            return 1;
        const Py_ssize_t needed = (Py_ssize_t)(row.size + varint_size((int64_t)row.size));
        if (batch->used + needed > room)
            return 0;
        put_record(data + batch->used, row.size, row.delta, batch->at - start, row.key, row.value, row.tail);
        batch->used += needed;
        if (row.timestamp > batch->largest)
            batch->largest = row.timestamp;
    }
    return 0;
}

/* append_columns(body, start, end, order, rows, keys, values, tails, timestamps, base_timestamp, bytes_max)
 * -> (next, largest timestamp): see record_encoding.append_columns.
 */
static PyObject *append_columns(PyObject *module, PyObject *arguments)
{
    PyObject *body, *given_keys, *given_values, *given_tails;
    Py_ssize_t start, end, rows, bytes_max;
    Py_buffer order, timestamps;
    long long base_timestamp;
    Column keys, values, tails;
    int wrong = 0;

    (void)module;
    if (!PyArg_ParseTuple(arguments, "O!nnz*nOOOz*Ln", &PyByteArray_Type, &body, &start, &end, &order, &rows, &given_keys,
                          &given_values, &given_tails, &timestamps, &base_timestamp, &bytes_max))
        return NULL;
    PyObject *result = NULL;
    if (as_column(given_keys, &keys, rows))
        goto no_keys;
    if (as_column(given_values, &values, rows))
        goto no_values;
    if (as_column(given_tails, &tails, rows))
        goto no_tails;
    if (start < 0 || end < start || (order.buf ? order.len / 8 < end : rows < end) ||
        (timestamps.buf && timestamps.len / 8 < rows)) {
        PyErr_SetString(PyExc_ValueError, "the rows are not within the columns");
        goto done;
    }
    const Py_ssize_t before = PyByteArray_GET_SIZE(body);
    Batch batch = {&keys, &values, &tails, order.buf, timestamps.buf, rows, base_timestamp, start, INT64_MIN, before};
    Py_ssize_t room = before;
    if (start < end && batch_row_size(&batch, start, &room) < 0) {
        wrong = 1;
    } else {
        room = before + room > bytes_max ? before + room : bytes_max; /* the first row in any case */
        if (PyByteArray_Resize(body, room) < 0)
            goto done;
        Py_buffer view; /* keeps the body where it is while others run */
        if (PyObject_GetBuffer((PyObject *)body, &view, PyBUF_WRITABLE) < 0)
            goto done;
        Py_BEGIN_ALLOW_THREADS
        wrong = encode_rows(&batch, view.buf, end, room);
        Py_END_ALLOW_THREADS
        PyBuffer_Release(&view);
        if (PyByteArray_Resize(body, batch.used) < 0)
            goto done;
    }
    if (wrong)
        PyErr_SetString(PyExc_ValueError, "a row or an offset is not within its column");
    else
        result = Py_BuildValue("nL", batch.at, (long long)batch.largest);
done:
    release(&tails);
no_tails:
    release(&values);
no_values:
    release(&keys);
no_keys:
    PyBuffer_Release(&order);
    PyBuffer_Release(&timestamps);
    return result;
}

/* partitions_of(keys, rows, count, out): the partition of each key, as int64 in the writable buffer `out`; -1 for null. */
static PyObject *partitions_of(PyObject *module, PyObject *arguments)
{
    PyObject *given;
    Py_ssize_t rows, count;
    Py_buffer out;
    Column keys;

    (void)module;
    if (!PyArg_ParseTuple(arguments, "Onnw*", &given, &rows, &count, &out))
        return NULL;
    if (as_column(given, &keys, rows)) {
        PyBuffer_Release(&out);
        return NULL;
    }
    int bad = count < 1 || out.len / 8 < rows;
    for (Py_ssize_t row = 0; row < rows && !bad; row++) {
        Field key;
        bad = field_at(&keys, row, &key);
        if (!bad)
            ((int64_t *)out.buf)[row] =
                key.data == NULL ? -1 : (int64_t)((hash_of(key.data, key.size) & 0x7FFFFFFF) % (uint64_t)count);
    }
    release(&keys);
    PyBuffer_Release(&out);
    if (bad) {
        PyErr_SetString(PyExc_ValueError, "a row or an offset is not within its column");
        return NULL;
    }
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"append_record", (PyCFunction)(void (*)(void))append_record, METH_FASTCALL, "see record_encoding.append_record"},
    {"shorten", (PyCFunction)(void (*)(void))shorten, METH_FASTCALL, "see record_encoding.shorten"},
    {"murmur2", murmur2, METH_O, "murmur2(data) -> hash: see record_encoding.murmur2"},
    {"append_columns", append_columns, METH_VARARGS, "see record_encoding.append_columns"},
    {"partitions_of", partitions_of, METH_VARARGS, "see record_encoding.partitions_of"},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_encoding", NULL, 0, functions, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__encoding(void)
{
    return PyModuleDef_Init(&definition);
}
