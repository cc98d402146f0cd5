/* The loop of reader.py in C: the records of a batch as tuples. Whatever is malformed is left to the loop in Python,
 * which names it.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>

typedef struct {
    const uint8_t *at;
    const uint8_t *end;
} cursor_t;

/* Whether a varint could be read; it is zigzag-decoded. */
static int read_varint(cursor_t *cursor, int64_t *value)
{
    uint64_t number = 0;
    for (int shift = 0; shift < 70 && cursor->at < cursor->end; shift += 7) {
        const uint8_t byte = *cursor->at++;
        if (shift == 63 && byte > 1)
            return 0;
        number |= (uint64_t)(byte & 0x7F) << shift;
        if (byte <= 0x7F) {
            *value = (int64_t)(number >> 1) ^ -(int64_t)(number & 1);
            return 1;
        }
    }
    return 0;
}

/* A field of bytes, or None if its length is -1. NULL without an exception: it is malformed. */
static PyObject *read_bytes(cursor_t *cursor)
{
    int64_t length;
    if (!read_varint(cursor, &length) || length < -1 || length > cursor->end - cursor->at)
        return NULL;
    if (length == -1)
        return Py_NewRef(Py_None);
    PyObject *bytes = PyBytes_FromStringAndSize((const char *)cursor->at, (Py_ssize_t)length);
    cursor->at += length;
    return bytes;
}

static PyObject *read_header(cursor_t *cursor)
{
    int64_t length;
    if (!read_varint(cursor, &length) || length < 0 || length > cursor->end - cursor->at)
        return NULL;
    PyObject *name = PyUnicode_DecodeUTF8((const char *)cursor->at, (Py_ssize_t)length, "replace");
    if (name == NULL)
        return NULL;
    cursor->at += length;
    PyObject *value = read_bytes(cursor);
    PyObject *header = value == NULL ? NULL : PyTuple_Pack(2, name, value);
    Py_DECREF(name);
    Py_XDECREF(value);
    return header;
}

static PyObject *read_headers(cursor_t *cursor, PyObject *none)
{
    int64_t count;
    if (!read_varint(cursor, &count) || count < 0 || count > (cursor->end - cursor->at) / 2)
        return NULL;
    if (count == 0)
        return Py_NewRef(none);
    PyObject *headers = PyTuple_New((Py_ssize_t)count);
    for (Py_ssize_t index = 0; headers != NULL && index < count; index++) {
        PyObject *header = read_header(cursor);
        if (header == NULL)
            Py_CLEAR(headers);
        else
            PyTuple_SET_ITEM(headers, index, header);
    }
    return headers;
}

typedef struct {
    long long base_offset, last_offset_delta, base_timestamp, from_offset;
    PyObject *append_time;     /* None: each record has its own timestamp */
    PyObject *timestamp_type;
    PyTypeObject *record_type; /* a named tuple */
    PyObject *prefix;          /* its first fields, the same for all records */
    PyObject *no_headers;
} batch_t;

/* 1: the record was read, and added unless its offset is too low; 0: it is malformed, or there is an exception. */
static int read_record(const batch_t *batch, cursor_t *data, int64_t *previous_delta, PyObject *records)
{
    int64_t length, timestamp_delta, offset_delta;
    if (!read_varint(data, &length) || length < 1 || length > data->end - data->at)
        return 0;
    cursor_t record = {data->at + 1, data->at + length}; /* its attributes are unused */
    long long timestamp, offset;
    if (!read_varint(&record, &timestamp_delta) || !read_varint(&record, &offset_delta)
        || offset_delta <= *previous_delta || offset_delta > batch->last_offset_delta
        || __builtin_add_overflow(batch->base_timestamp, timestamp_delta, &timestamp)
        || __builtin_add_overflow(batch->base_offset, offset_delta, &offset))
        return 0;
    *previous_delta = offset_delta;
    data->at = record.end;

    PyObject *key = read_bytes(&record);
    PyObject *value = key == NULL ? NULL : read_bytes(&record);
    PyObject *headers = value == NULL ? NULL : read_headers(&record, batch->no_headers);
    int done = headers != NULL && record.at == record.end;
    if (done && offset >= batch->from_offset) {
        const Py_ssize_t first = PyTuple_GET_SIZE(batch->prefix);
        PyObject *made = batch->record_type->tp_alloc(batch->record_type, first + 6);
        PyObject *at = PyLong_FromLongLong(offset);
        PyObject *time = batch->append_time == Py_None ? PyLong_FromLongLong(timestamp) : Py_NewRef(batch->append_time);
        done = made != NULL && at != NULL && time != NULL;
        if (done) {
            for (Py_ssize_t index = 0; index < first; index++)
                PyTuple_SET_ITEM(made, index, Py_NewRef(PyTuple_GET_ITEM(batch->prefix, index)));
            PyTuple_SET_ITEM(made, first, at);
            PyTuple_SET_ITEM(made, first + 1, time);
            PyTuple_SET_ITEM(made, first + 2, Py_NewRef(batch->timestamp_type));
            PyTuple_SET_ITEM(made, first + 3, Py_NewRef(key));
            PyTuple_SET_ITEM(made, first + 4, Py_NewRef(value));
            PyTuple_SET_ITEM(made, first + 5, Py_NewRef(headers));
            PyObject_GC_UnTrack(made); /* no cycle leads through it, and millions would burden the collector */
            done = PyList_Append(records, made) == 0;
        } else {
            Py_XDECREF(at);
            Py_XDECREF(time);
        }
        Py_XDECREF(made);
    }
    Py_XDECREF(key);
    Py_XDECREF(value);
    Py_XDECREF(headers);
    return done;
}

static PyObject *decode(PyObject *module, PyObject *arguments)
{
    Py_buffer buffer;
    batch_t batch;
    Py_ssize_t count;

    (void)module;
    if (!PyArg_ParseTuple(arguments, "y*nLLLOO!LO!O!", &buffer, &count, &batch.base_offset, &batch.last_offset_delta,
                          &batch.base_timestamp, &batch.append_time, &PyLong_Type, &batch.timestamp_type,
                          &batch.from_offset, &PyType_Type, &batch.record_type, &PyTuple_Type, &batch.prefix))
        return NULL;
    PyObject *records = NULL;
    if (!PyType_IsSubtype(batch.record_type, &PyTuple_Type) || batch.record_type->tp_basicsize != PyTuple_Type.tp_basicsize) {
        PyErr_SetString(PyExc_TypeError, "a record must be a named tuple");
    } else if ((batch.no_headers = PyTuple_New(0)) != NULL) {
        cursor_t data = {buffer.buf, (const uint8_t *)buffer.buf + buffer.len};
        int64_t previous_delta = -1;
        int sound = 1;
        records = PyList_New(0);
        for (Py_ssize_t index = 0; records != NULL && sound && index < count; index++)
            sound = read_record(&batch, &data, &previous_delta, records);
        if (records != NULL && (!sound || data.at != data.end))
            Py_CLEAR(records);
        Py_DECREF(batch.no_headers);
    }
    PyBuffer_Release(&buffer);
    if (records == NULL && !PyErr_Occurred())
        Py_RETURN_NONE;
    return records;
}

static PyMethodDef functions[] = {
    {"decode", decode, METH_VARARGS,
     "decode(data, count, base_offset, last_offset_delta, base_timestamp, append_time, timestamp_type, from_offset,"
     " record_type, prefix) -> list of records, or None if they are malformed"},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_decoding", NULL, 0, functions, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__decoding(void)
{
    return PyModuleDef_Init(&definition);
}
