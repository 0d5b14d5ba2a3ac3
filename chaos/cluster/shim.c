/*
 * Syncs that are slow or fail: a library that is loaded before the C library, in every process of
 * a node. The file that CHAOS_SYNCS names is mapped into all of them: the harness writes how long
 * a sync takes and how many are to fail, and reads how many there were.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

/* chaos/cluster/syncs.py has the same layout. */
struct control {
    int32_t delay_ms;
    int32_t to_fail;
    int32_t syncs;
    int32_t delayed;
    int32_t failed;
};

static struct control *control;

__attribute__((constructor)) static void open_control(void)
{
    const char *path = getenv("CHAOS_SYNCS");
    int file;
    void *mapped;

    if (path == NULL || (file = open(path, O_RDWR | O_CLOEXEC)) < 0)
        return;
    mapped = mmap(NULL, sizeof(struct control), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (mapped != MAP_FAILED)
        control = mapped;
    close(file);
}

static int sync_or_fail(const char *name, int file)
{
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, name);
    int delay_ms;

    if (control == NULL)
        return real(file);
    __atomic_add_fetch(&control->syncs, 1, __ATOMIC_RELAXED);
    if (__atomic_load_n(&control->to_fail, __ATOMIC_RELAXED) > 0 &&
        __atomic_sub_fetch(&control->to_fail, 1, __ATOMIC_RELAXED) >= 0) {
        __atomic_add_fetch(&control->failed, 1, __ATOMIC_RELAXED);
        errno = EIO;
        return -1;
    }
    delay_ms = __atomic_load_n(&control->delay_ms, __ATOMIC_RELAXED);
    if (delay_ms > 0) {
        struct timespec pause = {delay_ms / 1000, (delay_ms % 1000) * 1000000L};
        __atomic_add_fetch(&control->delayed, 1, __ATOMIC_RELAXED);
        nanosleep(&pause, NULL);
    }
    return real(file);
}

int fsync(int file)
{
    return sync_or_fail("fsync", file);
}

int fdatasync(int file)
{
    return sync_or_fail("fdatasync", file);
}
