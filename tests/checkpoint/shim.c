/* Stands between a process and what it does to files named data.mdb: counts the calls, records them, ends
 * the process at one of them, or lets one fail. Loaded by LD_PRELOAD; Linux only. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

enum { WRITE = 1, SYNC = 2, TRUNCATE = 3, MARK = 4, DURABLE_WRITE = 5, LINK = 6, MAP = 7 };

static int log_fd = -1;
static long count, kill_at, fail_at;
static int kill_after, fail_with, fail_for_ever, fail_kinds;

struct head {
    int64_t kind, offset, size;
};

void shim_record(const char *path) {
    log_fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
}
void shim_kill(long nth, int after) {
    count = 0;
    kill_at = nth;
    kill_after = after;
}
void shim_fail(long nth, int error, int for_ever, int kinds) {
    count = 0;
    fail_at = nth;
    fail_with = error;
    fail_for_ever = for_ever;
    fail_kinds = kinds;
}
long shim_count(void) { return count; }

static void put_log(int64_t kind, int64_t offset, const void *data, int64_t size) {
    if (log_fd < 0) return;
    struct head head = {kind, offset, size};
    syscall(SYS_write, log_fd, &head, sizeof head);
    if (data && size > 0) syscall(SYS_write, log_fd, data, size);
}
void shim_mark(long number) { put_log(MARK, number, 0, 0); }

static int watched(int fd) {
    char name[64], path[4096];
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    ssize_t size = readlink(name, path, sizeof path - 1);
    if (size < 8) return 0;
    path[size] = 0;
    return strcmp(path + size - 8, "data.mdb") == 0;
}

/* Before a call: whether it is to fail. */
static int enter(int kind) {
    count++;
    if (kill_at && count == kill_at && !kill_after) raise(SIGKILL);
    if (fail_at && (fail_kinds >> kind & 1) && (count == fail_at || (fail_for_ever && count > fail_at))) {
        errno = fail_with;
        return 1;
    }
    return 0;
}
static void leave(void) {
    if (kill_at && count == kill_at && kill_after) raise(SIGKILL);
}
static int durable(int fd) { return fcntl(fd, F_GETFL) & O_DSYNC ? DURABLE_WRITE : WRITE; }

static ssize_t do_pwrite(int fd, const void *data, size_t size, off_t offset) {
    if (!watched(fd)) return syscall(SYS_pwrite64, fd, data, size, offset);
    if (enter(WRITE)) return -1;
    ssize_t done = syscall(SYS_pwrite64, fd, data, size, offset);
    if (done > 0) put_log(durable(fd), offset, data, done);
    leave();
    return done;
}
ssize_t pwrite(int fd, const void *data, size_t size, off_t offset) {
    return do_pwrite(fd, data, size, offset);
}
ssize_t pwrite64(int fd, const void *data, size_t size, off_t offset) {
    return do_pwrite(fd, data, size, offset);
}
ssize_t write(int fd, const void *data, size_t size) {
    if (!watched(fd)) return syscall(SYS_write, fd, data, size);
    off_t offset = lseek(fd, 0, SEEK_CUR);
    if (enter(WRITE)) return -1;
    ssize_t done = syscall(SYS_write, fd, data, size);
    if (done > 0) put_log(durable(fd), offset, data, done);
    leave();
    return done;
}
static void log_vector(int fd, const struct iovec *vector, int parts, off_t offset, ssize_t done) {
    if (log_fd < 0 || done <= 0) return;
    struct head head = {durable(fd), offset, done};
    syscall(SYS_write, log_fd, &head, sizeof head);
    for (int i = 0; i < parts && done > 0; i++) {
        ssize_t size = (ssize_t)vector[i].iov_len < done ? (ssize_t)vector[i].iov_len : done;
        syscall(SYS_write, log_fd, vector[i].iov_base, size);
        done -= size;
    }
}
static ssize_t do_pwritev(int fd, const struct iovec *vector, int parts, off_t offset) {
    if (!watched(fd)) return syscall(SYS_pwritev, fd, vector, parts, offset, 0);
    if (enter(WRITE)) return -1;
    ssize_t done = syscall(SYS_pwritev, fd, vector, parts, offset, 0);
    log_vector(fd, vector, parts, offset, done);
    leave();
    return done;
}
ssize_t pwritev(int fd, const struct iovec *vector, int parts, off_t offset) {
    return do_pwritev(fd, vector, parts, offset);
}
ssize_t pwritev64(int fd, const struct iovec *vector, int parts, off_t offset) {
    return do_pwritev(fd, vector, parts, offset);
}
ssize_t writev(int fd, const struct iovec *vector, int parts) {
    if (!watched(fd)) return syscall(SYS_writev, fd, vector, parts);
    off_t offset = lseek(fd, 0, SEEK_CUR);
    if (enter(WRITE)) return -1;
    ssize_t done = syscall(SYS_writev, fd, vector, parts);
    log_vector(fd, vector, parts, offset, done);
    leave();
    return done;
}
static int do_sync(int fd, long call) {
    if (!watched(fd)) return syscall(call, fd);
    if (enter(SYNC)) return -1;
    int done = syscall(call, fd);
    if (done == 0) put_log(SYNC, 0, 0, 0);
    leave();
    return done;
}
int fdatasync(int fd) { return do_sync(fd, SYS_fdatasync); }
int fsync(int fd) { return do_sync(fd, SYS_fsync); }
static int do_truncate(int fd, off_t size) {
    if (!watched(fd)) return syscall(SYS_ftruncate, fd, size);
    if (enter(TRUNCATE)) return -1;
    int done = syscall(SYS_ftruncate, fd, size);
    if (done == 0) put_log(TRUNCATE, size, 0, 0);
    leave();
    return done;
}
int ftruncate(int fd, off_t size) { return do_truncate(fd, size); }
int ftruncate64(int fd, off_t size) { return do_truncate(fd, size); }
static int ends_alike(const char *path) {
    size_t size = strlen(path);
    return size >= 8 && strcmp(path + size - 8, "data.mdb") == 0;
}
int linkat(int from, const char *old, int to, const char *new, int flags) {
    int done = syscall(SYS_linkat, from, old, to, new, flags);
    if (done == 0 && ends_alike(new)) put_log(LINK, 0, 0, 0);
    return done;
}
int link(const char *old, const char *new) { return linkat(AT_FDCWD, old, AT_FDCWD, new, 0); }
static void *(*next_mmap)(void *, size_t, int, int, int, off_t);
static void *do_mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset) {
    int counted = fd >= 0 && watched(fd);
    if (counted && enter(MAP)) return (void *)-1;
    if (!next_mmap) next_mmap = dlsym(RTLD_NEXT, "mmap");
    void *done = next_mmap(at, size, protection, flags, fd, offset);
    if (counted) {
        put_log(MAP, 0, 0, 0);
        leave();
    }
    return done;
}
void *mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset) {
    return do_mmap(at, size, protection, flags, fd, offset);
}
void *mmap64(void *at, size_t size, int protection, int flags, int fd, off_t offset) {
    return do_mmap(at, size, protection, flags, fd, offset);
}
