/* The loop of record_scan_loop.py in C: see there for the state, its fields and the events. It allocates nothing, never
 * reads beyond the buffer, and keeps no pointer.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>

enum { PHASE, NUMBER, SHIFT, SKIP, LEFT, HEADERS, INDEX, COUNT, LOWEST, HIGHEST, NONE, NEEDS_KEY, LARGEST, EVENT, FIELDS };
enum { LENGTH, TIMESTAMP, OFFSET, KEY, VALUE, HEADER_COUNT, NAME, HEADER_VALUE };
enum {
    NOTHING, BAD_TIMESTAMP, NO_KEY,
    BAD_VARINT, BAD_LENGTH, BAD_OFFSET, BAD_FIELD, BAD_HEADER_COUNT, BAD_NAME, BAD_SIZE, EXCESS
};

enum { RECORD_BYTES_MIN = 6, RELEASE_GIL_BYTES = 1 << 16 };

static Py_ssize_t scan_records(int64_t *state, const uint8_t *data, Py_ssize_t at, Py_ssize_t end)
{
    int64_t phase = state[PHASE], skip = state[SKIP], left = state[LEFT], headers = state[HEADERS];
    int64_t shift = state[SHIFT], index = state[INDEX], largest = state[LARGEST], event = NOTHING;
    uint64_t number = (uint64_t)state[NUMBER];

    while (event == NOTHING) {
        if (skip > end - at) {
            skip -= end - at;
            at = end;
            break;
        }
        at += skip;
        skip = 0;
        if (at == end)
            break;
        if (phase == LENGTH && index + 1 == state[COUNT]) {
            event = EXCESS;
            break;
        }
        const uint8_t byte = data[at++];
        if (phase != LENGTH && --left < 0) {
            event = BAD_SIZE;
            break;
        }
        if (phase == TIMESTAMP ? shift == 63 && byte > 1 : shift == 28 && byte > 15) {
            event = BAD_VARINT;
            break;
        }
        number |= (uint64_t)(byte & 0x7F) << shift;
        if (byte > 0x7F) {
            shift += 7;
            continue;
        }
        const int64_t value = (int64_t)(number >> 1) ^ -(int64_t)(number & 1);
        number = 0;
        shift = 0;
        switch (phase) {
        case LENGTH:
            if (value < RECORD_BYTES_MIN) {
                event = BAD_LENGTH;
                break;
            }
            index += 1;
            skip = 1; /* attributes, unused */
            left = value - 1;
            phase = TIMESTAMP;
            break;
        case TIMESTAMP:
            if (value > largest)
                largest = value;
            if ((value < state[LOWEST] || value > state[HIGHEST]) && value != state[NONE])
                event = BAD_TIMESTAMP;
            phase = OFFSET;
            break;
        case OFFSET:
            if (value != index)
                event = BAD_OFFSET;
            phase = KEY;
            break;
        case KEY:
        case VALUE:
        case HEADER_VALUE:
            if (value < -1) {
                event = BAD_FIELD;
                break;
            }
            if (value > 0)
                skip = value;
            left -= skip;
            if (phase == KEY) {
                if (value < 0 && state[NEEDS_KEY])
                    event = NO_KEY;
                phase = VALUE;
            } else if (phase == VALUE) {
                phase = HEADER_COUNT;
            } else if (--headers) {
                phase = NAME;
            } else {
                phase = LENGTH;
            }
            if (phase == LENGTH ? left != 0 : left < 0)
                event = BAD_SIZE;
            break;
        case HEADER_COUNT:
            if (value < 0 || 2 * value > left) {
                event = BAD_HEADER_COUNT;
                break;
            }
            headers = value;
            phase = headers ? NAME : LENGTH;
            if (!headers && left)
                event = BAD_SIZE;
            break;
        case NAME:
            if (value < 0) {
                event = BAD_NAME;
                break;
            }
            skip = value;
            left -= value;
            if (left < 0)
                event = BAD_SIZE;
            phase = HEADER_VALUE;
            break;
        }
    }
    state[PHASE] = phase;
    state[NUMBER] = (int64_t)number;
    state[SHIFT] = shift;
    state[SKIP] = skip;
    state[LEFT] = left;
    state[HEADERS] = headers;
    state[INDEX] = index;
    state[LARGEST] = largest;
    state[EVENT] = event;
    return at;
}

static PyObject *scan(PyObject *module, PyObject *arguments)
{
    Py_buffer state, data;
    Py_ssize_t at;

    (void)module;
    if (!PyArg_ParseTuple(arguments, "w*y*n", &state, &data, &at))
        return NULL;
    if (state.len != FIELDS * (Py_ssize_t)sizeof(int64_t) || (uintptr_t)state.buf % sizeof(int64_t)) {
        PyErr_SetString(PyExc_ValueError, "the state is not an aligned array of 14 int64");
        at = -1;
    } else if (at < 0 || at > data.len) {
        PyErr_SetString(PyExc_ValueError, "the position is not within the data");
        at = -1;
    } else if (data.len - at < RELEASE_GIL_BYTES) {
        at = scan_records(state.buf, data.buf, at, data.len);
    } else {
        Py_BEGIN_ALLOW_THREADS
        at = scan_records(state.buf, data.buf, at, data.len);
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&data);
    PyBuffer_Release(&state);
    return at < 0 ? NULL : PyLong_FromSsize_t(at);
}

static PyMethodDef functions[] = {
    {"scan", scan, METH_VARARGS, "scan(state, data, at) -> position: see record_scan_loop.scan"},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_record_scan", NULL, 0, functions, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__record_scan(void)
{
    return PyModuleDef_Init(&definition);
}
