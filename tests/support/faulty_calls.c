/* Preloaded into a node (LD_PRELOAD): system calls that fail or take long, and a wall clock that is wrong.
 *
 * The file in FAULTY_CALLS holds the struct below, which a test changes while the node runs. Only descriptors whose path
 * contains `path` are affected. The monotonic clock is never changed.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

struct faults {
    int64_t clock_offset_seconds;
    int32_t failing_syncs;
    int32_t sync_ms;
    int32_t write_ms;
    char path[108];
};

static struct faults none;
static volatile struct faults *faults = &none;

__attribute__((constructor)) static void begin(void) {
    const char *name = getenv("FAULTY_CALLS");
    int descriptor = name ? open(name, O_RDWR | O_CLOEXEC) : -1;
    if (descriptor < 0)
        return;
    void *mapped = mmap(NULL, sizeof(struct faults), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    close(descriptor);
    if (mapped != MAP_FAILED)
        faults = mapped;
}

static int affected(int descriptor) {
    char link[40], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t size = readlink(link, path, sizeof path - 1);
    if (size < 0)
        return 0;
    path[size] = 0;
    return strstr(path, (const char *)faults->path) != NULL;
}

static void wait_ms(int ms) {
    struct timespec time = {ms / 1000, ms % 1000 * 1000000L};
    nanosleep(&time, NULL);
}

int fsync(int descriptor) {
    static int (*real)(int);
    if (!real)
        real = dlsym(RTLD_NEXT, "fsync");
    if ((faults->failing_syncs || faults->sync_ms) && affected(descriptor)) {
        wait_ms(faults->sync_ms);
        if (faults->failing_syncs > 0 && __sync_fetch_and_sub(&faults->failing_syncs, 1) > 0) {
            errno = EIO;
            return -1;
        }
    }
    return real(descriptor);
}

static ssize_t write_at(int descriptor, const void *data, size_t size, off_t position) {
    static ssize_t (*real)(int, const void *, size_t, off_t);
    if (!real)
        real = dlsym(RTLD_NEXT, "pwrite64");
    if (faults->write_ms && affected(descriptor))
        wait_ms(faults->write_ms);
    return real(descriptor, data, size, position);
}

ssize_t pwrite(int descriptor, const void *data, size_t size, off_t position) {
    return write_at(descriptor, data, size, position);
}

ssize_t pwrite64(int descriptor, const void *data, size_t size, off_t position) {
    return write_at(descriptor, data, size, position);
}

int clock_gettime(clockid_t clock, struct timespec *time) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real)
        real = dlsym(RTLD_NEXT, "clock_gettime");
    int failed = real(clock, time);
    if (!failed && clock == CLOCK_REALTIME)
        time->tv_sec += faults->clock_offset_seconds;
    return failed;
}

time_t time(time_t *stored) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (stored)
        *stored = now.tv_sec;
    return now.tv_sec;
}

int gettimeofday(struct timeval *now, void *zone) {
    struct timespec precise;
    clock_gettime(CLOCK_REALTIME, &precise);
    now->tv_sec = precise.tv_sec;
    now->tv_usec = precise.tv_nsec / 1000;
    return 0;
}
