/* QuickSend: the common case of Producer.send in C. See appending.py, which has the same in Python, and more.
 *
 * The data belong to objects of Python, whose slots (__slots__) are read and written here by their offsets. All that can
 * fail is done before the first of them changes. What is not the common case is left to the caller.
 */
#include "../../protocol/records/_record.h"
#include <stddef.h>
#include <structmember.h>

enum { RECORD_OVERHEAD_BYTES = 21, NANOSECONDS_PER_MS = 1000000 };

/* The classes that QuickSend is given, in this order; the last one is that of what `send` returns. */
enum { TOPIC, STICKY, BATCH, BUILDER, ACCUMULATOR, DELIVERY, CLASSES };

/* A slot: its class, its name here, and its name in Python. */
#define EACH_SLOT(X) \
    X(TOPIC, TOPIC_STICKY, "sticky") \
    X(TOPIC, TOPIC_HASHES_KEYS, "hashes_keys") \
    X(TOPIC, TOPIC_BATCHES, "batches") \
    X(TOPIC, TOPIC_PARTITION_COUNT, "partition_count") \
    X(STICKY, STICKY_CURRENT, "current") \
    X(STICKY, STICKY_CURRENT_BYTES, "current_bytes") \
    X(BATCH, BATCH_CLOSED, "closed") \
    X(BATCH, BATCH_SIZE_BYTES, "size_bytes") \
    X(BATCH, BATCH_CALLBACKS, "callbacks") \
    X(BATCH, BATCH_BUILDER, "builder") \
    X(BUILDER, BUILDER_BODY, "body") \
    X(BUILDER, BUILDER_COUNT, "count") \
    X(BUILDER, BUILDER_BASE_TIMESTAMP_MS, "base_timestamp_ms") \
    X(BUILDER, BUILDER_MAX_TIMESTAMP_MS, "max_timestamp_ms") \
    X(ACCUMULATOR, ACCUMULATOR_USED_BYTES, "used_bytes") \
    X(ACCUMULATOR, ACCUMULATOR_BUFFER_BYTES, "buffer_bytes") \
    X(DELIVERY, DELIVERY_BATCH, "_batch") \
    X(DELIVERY, DELIVERY_INDEX, "_index") \
    X(DELIVERY, DELIVERY_TIMESTAMP_MS, "_timestamp_ms") \
    X(DELIVERY, DELIVERY_ENDS, "_ends")
#define ITS_NUMBER(owner, number, name) number,
#define ITS_NAME(owner, number, name) {owner, name},
enum { EACH_SLOT(ITS_NUMBER) SLOTS };
static const struct {
    int owner;
    const char *name;
} slots[SLOTS] = {EACH_SLOT(ITS_NAME)};

typedef struct {
    PyObject_HEAD
    vectorcallfunc call;
    PyObject *topics;      /* dict: OpenTopic by name */
    PyObject *accumulator;
    PyObject *ends;        /* what a delivery waits at */
    PyObject *clock;       /* nanoseconds since 1970 */
    PyObject *lock;        /* held while a record is appended; None: there is one thread */
    PyObject *classes;     /* tuple, keeps the offsets valid */
    Py_ssize_t bytes_max;  /* a batch is open below this size */
    Py_ssize_t offsets[SLOTS];
} QuickSend;

static inline PyObject **slot(const QuickSend *self, PyObject *object, int which)
{
    return (PyObject **)((char *)object + self->offsets[which]);
}

/* A borrowed reference to what the slot has; NULL if that is not an instance of the class. */
static inline PyObject *instance(const QuickSend *self, PyObject *object, int which, int owner)
{
    PyObject *found = *slot(self, object, which);
    return found != NULL && PyObject_TypeCheck(found, (PyTypeObject *)PyTuple_GET_ITEM(self->classes, owner)) ? found : NULL;
}

static inline int64_t number(const QuickSend *self, PyObject *object, int which)
{
    PyObject *found = *slot(self, object, which);
    return found != NULL && PyLong_Check(found) ? PyLong_AsLongLong(found) : -1;
}

static inline void put(const QuickSend *self, PyObject *object, int which, PyObject *value)
{
    PyObject **at = slot(self, object, which), *before = *at;
    *at = Py_NewRef(value);
    Py_XDECREF(before);
}

static int64_t now_ms(const QuickSend *self)
{
    PyObject *now = PyObject_CallNoArgs(self->clock);
    if (now == NULL)
        return -1;
    const int64_t nanoseconds = PyLong_AsLongLong(now);
    Py_DECREF(now);
    return nanoseconds / NANOSECONDS_PER_MS;
}

static PyObject *acquire, *release; /* the names of a lock's methods */

/* Call a method of the lock, if there is one: 0, or -1 with an exception. One that was set before stays. */
static int locked(const QuickSend *self, PyObject *method)
{
    PyObject *type, *value, *trace;
    if (self->lock == Py_None)
        return 0;
    PyErr_Fetch(&type, &value, &trace);
    PyObject *const arguments[] = {self->lock};
    PyObject *done = PyObject_VectorcallMethod(method, arguments, 1, NULL);
    Py_XDECREF(done);
    if (type != NULL)
        PyErr_Restore(type, value, trace);
    return done == NULL ? -1 : 0;
}

static inline int is_plain(PyObject *object)
{
    return object == Py_None || PyBytes_CheckExact(object);
}

static inline Field as_bytes(PyObject *object)
{
    const Field null = {NULL, 0};
    if (object == Py_None)
        return null;
    const Field found = {(const uint8_t *)PyBytes_AS_STRING(object), PyBytes_GET_SIZE(object)};
    return found;
}

/* The batch that the record belongs into, borrowed; NULL if none is open. */
static PyObject *open_batch(const QuickSend *self, PyObject *topic, PyObject *key, PyObject **sticky)
{
    PyObject *found = PyDict_GetItemWithError(self->topics, topic);
    if (found == NULL || !PyObject_TypeCheck(found, (PyTypeObject *)PyTuple_GET_ITEM(self->classes, TOPIC)))
        return NULL;
    PyObject *batches = *slot(self, found, TOPIC_BATCHES);
    *sticky = instance(self, found, TOPIC_STICKY, STICKY);
    if (*sticky == NULL || batches == NULL || !PyList_Check(batches))
        return NULL;
    int64_t partition = number(self, *sticky, STICKY_CURRENT);
    if (key != Py_None) {
        const int64_t count = number(self, found, TOPIC_PARTITION_COUNT);
        if (*slot(self, found, TOPIC_HASHES_KEYS) != Py_True || count < 1)
            return NULL;
        const uint32_t hashed = hash_of((const uint8_t *)PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key));
        partition = (int64_t)(hashed & 0x7FFFFFFF) % count;
    }
    if (partition < 0 || partition >= PyList_GET_SIZE(batches))
        return NULL;
    PyObject *batch = PyList_GET_ITEM(batches, partition);
    if (!PyObject_TypeCheck(batch, (PyTypeObject *)PyTuple_GET_ITEM(self->classes, BATCH)))
        return NULL;
    return *slot(self, batch, BATCH_CLOSED) == Py_False ? batch : NULL;
}

/* Append a record without headers to the batch that is open for it, and fill in `delivery` and, unless it is NULL, `told`,
 * which goes to the callbacks of the batch. 1: done; 0: no batch is open, or it does not take the record; -1: exception.
 * Nothing here runs other code: what may start the garbage collector, `delivery` and `told`, was made before. */
static int append(const QuickSend *self, PyObject *topic, PyObject *value, PyObject *key, int64_t stamp, PyObject *delivery,
                  PyObject *told, PyObject *on_delivery)
{
    PyObject *sticky, *batch = open_batch(self, topic, key, &sticky);
    if (batch == NULL)
        return PyErr_Occurred() ? -1 : 0;
    PyObject *builder = instance(self, batch, BATCH_BUILDER, BUILDER), *callbacks = *slot(self, batch, BATCH_CALLBACKS);
    PyObject *body = builder == NULL ? NULL : *slot(self, builder, BUILDER_BODY);
    if (body == NULL || !PyByteArray_Check(body) || callbacks == NULL || !PyList_Check(callbacks))
        return 0;
    const Field key_field = as_bytes(key), value_field = as_bytes(value), no_headers = {NULL, 0};
    const int64_t room = RECORD_OVERHEAD_BYTES + key_field.size + value_field.size;
    const int64_t batch_bytes = number(self, batch, BATCH_SIZE_BYTES) + room;
    const int64_t used_bytes = number(self, self->accumulator, ACCUMULATOR_USED_BYTES) + room;
    const int64_t count = number(self, builder, BUILDER_COUNT);
    if (batch_bytes >= self->bytes_max || used_bytes > number(self, self->accumulator, ACCUMULATOR_BUFFER_BYTES) || count < 1)
        return 0;

    enum { TIMESTAMP_MS, INDEX, NEXT, OF_BATCH, OF_ALL, OF_STICKY, NUMBERS };
    const int64_t of_sticky = number(self, sticky, STICKY_CURRENT_BYTES) + (key == Py_None ? room : 0);
    const int64_t values[NUMBERS] = {stamp, count, count + 1, batch_bytes, used_bytes, of_sticky};
    PyObject *numbers[NUMBERS];
    for (int each = 0; each < NUMBERS; each++)
        if ((numbers[each] = PyLong_FromLongLong(values[each])) == NULL) {
            while (each-- > 0)
                Py_DECREF(numbers[each]);
            return -1;
        }
    const int64_t delta = stamp - number(self, builder, BUILDER_BASE_TIMESTAMP_MS);
    const size_t size = record_size(delta, count, key_field, value_field, no_headers);
    const Py_ssize_t before = PyByteArray_GET_SIZE(body);
    int done = -1;
    if (resize(body, before + (Py_ssize_t)(size + varint_size((int64_t)size))) == 0) {
        if (told == NULL || PyList_Append(callbacks, told) == 0)
            done = 1;
        else
            resize(body, before);
    }
    if (done == 1) {
        put_record((uint8_t *)PyByteArray_AS_STRING(body) + before, size, delta, count, key_field, value_field, no_headers);
        *slot(self, delivery, DELIVERY_BATCH) = Py_NewRef(batch);
        *slot(self, delivery, DELIVERY_INDEX) = Py_NewRef(numbers[INDEX]);
        *slot(self, delivery, DELIVERY_TIMESTAMP_MS) = Py_NewRef(numbers[TIMESTAMP_MS]);
        *slot(self, delivery, DELIVERY_ENDS) = Py_NewRef(self->ends);
        if (told != NULL) {
            PyTuple_SET_ITEM(told, 0, Py_NewRef(numbers[INDEX]));
            PyTuple_SET_ITEM(told, 1, Py_NewRef(numbers[TIMESTAMP_MS]));
            PyTuple_SET_ITEM(told, 2, Py_NewRef(on_delivery));
        }
        put(self, builder, BUILDER_COUNT, numbers[NEXT]);
        if (stamp > number(self, builder, BUILDER_MAX_TIMESTAMP_MS))
            put(self, builder, BUILDER_MAX_TIMESTAMP_MS, numbers[TIMESTAMP_MS]);
        put(self, batch, BATCH_SIZE_BYTES, numbers[OF_BATCH]);
        put(self, self->accumulator, ACCUMULATOR_USED_BYTES, numbers[OF_ALL]);
        put(self, sticky, STICKY_CURRENT_BYTES, numbers[OF_STICKY]);
    }
    for (int each = 0; each < NUMBERS; each++)
        Py_DECREF(numbers[each]);
    return done;
}

/* quick_send(topic, value, key, on_delivery) -> delivery or None */
static PyObject *quick_send(PyObject *called, PyObject *const *arguments, size_t flags, PyObject *names)
{
    const QuickSend *self = (const QuickSend *)called;
    if (PyVectorcall_NARGS(flags) != 4 || names != NULL) {
        PyErr_SetString(PyExc_TypeError, "quick_send(topic, value, key, on_delivery)");
        return NULL;
    }
    PyObject *const topic = arguments[0], *const value = arguments[1], *const key = arguments[2];
    if (!PyUnicode_CheckExact(topic) || !is_plain(value) || !is_plain(key))
        Py_RETURN_NONE;
    const int64_t stamp = now_ms(self);
    if (stamp < 0)
        return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
    PyTypeObject *class = (PyTypeObject *)PyTuple_GET_ITEM(self->classes, DELIVERY);
    PyObject *delivery = class->tp_alloc(class, 0);
    PyObject *told = delivery == NULL || arguments[3] == Py_None ? NULL : PyTuple_New(3);
    if (delivery == NULL || (told == NULL && arguments[3] != Py_None)) {
        Py_XDECREF(delivery);
        return NULL;
    }
    int done = locked(self, acquire);
    if (done == 0) {
        done = append(self, topic, value, key, stamp, delivery, told, arguments[3]);
        if (locked(self, release) < 0)
            done = -1;
    }
    Py_XDECREF(told);
    if (done == 1)
        return delivery;
    Py_DECREF(delivery);
    if (done < 0)
        return NULL;
    Py_RETURN_NONE;
}

/* QuickSend(classes, topics, accumulator, bytes_max, ends, clock, lock): see appending.py. */
static PyObject *quick_send_new(PyTypeObject *type, PyObject *arguments, PyObject *names)
{
    PyObject *classes, *topics, *accumulator, *ends, *clock, *lock;
    Py_ssize_t bytes_max;

    (void)names;
    if (!PyArg_ParseTuple(arguments, "O!O!OnOOO", &PyTuple_Type, &classes, &PyDict_Type, &topics, &accumulator, &bytes_max,
                          &ends, &clock, &lock))
        return NULL;
    if (PyTuple_GET_SIZE(classes) != CLASSES) {
        PyErr_SetString(PyExc_TypeError, "a class is missing");
        return NULL;
    }
    for (int owner = 0; owner < CLASSES; owner++)
        if (!PyType_Check(PyTuple_GET_ITEM(classes, owner))) {
            PyErr_SetString(PyExc_TypeError, "not a class");
            return NULL;
        }
    if (!PyObject_TypeCheck(accumulator, (PyTypeObject *)PyTuple_GET_ITEM(classes, ACCUMULATOR))) {
        PyErr_SetString(PyExc_TypeError, "not an accumulator");
        return NULL;
    }
    QuickSend *self = (QuickSend *)type->tp_alloc(type, 0);
    if (self == NULL)
        return NULL;
    self->call = quick_send;
    self->classes = Py_NewRef(classes);
    self->topics = Py_NewRef(topics);
    self->accumulator = Py_NewRef(accumulator);
    self->bytes_max = bytes_max;
    self->ends = Py_NewRef(ends);
    self->clock = Py_NewRef(clock);
    self->lock = Py_NewRef(lock);
    for (int which = 0; which < SLOTS; which++) {
        PyObject *found = PyObject_GetAttrString(PyTuple_GET_ITEM(classes, slots[which].owner), slots[which].name);
        const PyMemberDef *member =
            found != NULL && Py_IS_TYPE(found, &PyMemberDescr_Type) ? ((PyMemberDescrObject *)found)->d_member : NULL;
        if (member != NULL && member->type == T_OBJECT_EX)
            self->offsets[which] = member->offset;
        else if (found != NULL)
            PyErr_Format(PyExc_TypeError, "%s is not a slot", slots[which].name);
        Py_XDECREF(found);
        if (PyErr_Occurred()) {
            Py_DECREF(self);
            return NULL;
        }
    }
    return (PyObject *)self;
}

static int quick_send_traverse(PyObject *object, visitproc visit, void *arg)
{
    QuickSend *self = (QuickSend *)object;
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(self->classes);
    Py_VISIT(self->topics);
    Py_VISIT(self->accumulator);
    Py_VISIT(self->ends);
    Py_VISIT(self->clock);
    Py_VISIT(self->lock);
    return 0;
}

static void quick_send_dealloc(PyObject *object)
{
    QuickSend *self = (QuickSend *)object;
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    Py_XDECREF(self->classes);
    Py_XDECREF(self->topics);
    Py_XDECREF(self->accumulator);
    Py_XDECREF(self->ends);
    Py_XDECREF(self->clock);
    Py_XDECREF(self->lock);
    type->tp_free(object);
    Py_DECREF(type);
}

static PyMemberDef members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(QuickSend, call), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot type_slots[] = {
    {Py_tp_new, quick_send_new},         {Py_tp_call, PyVectorcall_Call},     {Py_tp_members, members},
    {Py_tp_traverse, quick_send_traverse}, {Py_tp_dealloc, quick_send_dealloc}, {0, NULL},
};

static PyType_Spec spec = {
    "raylog.client.producer._appending.QuickSend", sizeof(QuickSend), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL, type_slots,
};

static int add_class(PyObject *module)
{
    acquire = acquire == NULL ? PyUnicode_InternFromString("acquire") : acquire;
    release = release == NULL ? PyUnicode_InternFromString("release") : release;
    PyObject *class = acquire == NULL || release == NULL ? NULL : PyType_FromSpec(&spec);
    if (class == NULL)
        return -1;
    const int done = PyModule_AddObjectRef(module, "QuickSend", class);
    Py_DECREF(class);
    return done;
}

static PyModuleDef_Slot module_slots[] = {{Py_mod_exec, add_class}, {0, NULL}};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_appending", NULL, 0, NULL, module_slots, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__appending(void)
{
    return PyModuleDef_Init(&definition);
}
