/* Communication without files: shared memory, queues, keys, FIFOs. Runs inside the sandbox. */
#include <errno.h>
#include <fcntl.h>
#include <linux/keyctl.h>
#include <stdio.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "selftest/inside/attempt.h"

static enum cg_verdict sysv_memory(struct cg_try *t, const struct cg_attempt *a)
{
        int id = shmget((key_t)cg_scene_number(t, "sysv_key"), 0, 0);
        const char *secret = cg_scene(t, "secret"), *p;

        if (id < 0)
                return cg_refused(t, -1);
        p = shmat(id, NULL, SHM_RDONLY);
        if (p == (void *)-1)
                return cg_held(t, "%s", cg_errno_name(errno));
        return secret && strncmp(p, secret, strlen(secret)) == 0 ? cg_hole(t, "its content was read")
                                                                 : cg_held(t, "another one");
}

static enum cg_verdict sysv_queue(struct cg_try *t, const struct cg_attempt *a)
{
        return cg_refused(t, msgget((key_t)cg_scene_number(t, "sysv_key"), 0));
}

static enum cg_verdict sysv_semaphore(struct cg_try *t, const struct cg_attempt *a)
{
        return cg_refused(t, semget((key_t)cg_scene_number(t, "sysv_key"), 0, 0));
}

/* All segments: /proc/sysvipc lists them without a key. */
static enum cg_verdict sysv_list(struct cg_try *t, const struct cg_attempt *a)
{
        char buf[65536], key[32];
        long n = cg_slurp("/proc/sysvipc/shm", buf, sizeof(buf));

        snprintf(key, sizeof(key), "%10ld ", (long)(key_t)cg_scene_number(t, "sysv_key"));
        if (n > 0 && cg_has(buf, (size_t)n, key))
                return cg_hole(t, "the host's segments are listed");
        return n < 0 ? cg_held(t, "%s", cg_errno_name(errno)) : cg_held(t, "it is not in the list");
}

static enum cg_verdict posix_queue(struct cg_try *t, const struct cg_attempt *a)
{
        const char *name = cg_scene(t, "mqueue");

        if (!name)
                return cg_skip(t, "this Linux has no message queues");
        return cg_refused(t, syscall(SYS_mq_open, name, O_RDONLY | O_NONBLOCK, 0, NULL));
}

static enum cg_verdict posix_memory(struct cg_try *t, const struct cg_attempt *a)
{
        char path[128];
        struct cg_attempt b = { .arg = path, .arg2 = "secret" };

        snprintf(path, sizeof(path), "/dev/shm/%s", cg_scene(t, "shm"));
        return cg_try_leak(t, &b);
}

static enum cg_verdict shm_listing(struct cg_try *t, const struct cg_attempt *a)
{
        char path[128];
        struct stat st;

        snprintf(path, sizeof(path), "/dev/shm/%s", cg_scene(t, "shm"));
        return cg_refused(t, stat(path, &st));
}

/* ---- keys. KEY_SPEC_USER_KEYRING is the user's, whatever namespace the process is in. */
static enum cg_verdict key_request(struct cg_try *t, const struct cg_attempt *a)
{
        const char *name = cg_scene(t, "key");

        if (!name)
                return cg_skip(t, "this Linux has no keys");
        return cg_filtered(t, syscall(SYS_request_key, "user", name, NULL, KEY_SPEC_PROCESS_KEYRING) >= 0 ||
                                              errno == ENOKEY
                                      ? 0
                                      : -1);
}

static enum cg_verdict key_search(struct cg_try *t, const struct cg_attempt *a)
{
        const char *name = cg_scene(t, "key");

        if (!name)
                return cg_skip(t, "this Linux has no keys");
        return cg_filtered(t, syscall(SYS_keyctl, KEYCTL_SEARCH, KEY_SPEC_USER_KEYRING, "user", name, 0));
}

static enum cg_verdict key_read(struct cg_try *t, const struct cg_attempt *a)
{
        char buf[128];

        if (!cg_scene(t, "key"))
                return cg_skip(t, "this Linux has no keys");
        return cg_filtered(
                t, syscall(SYS_keyctl, KEYCTL_READ, cg_scene_number(t, "key_serial"), buf, sizeof(buf), 0));
}

static enum cg_verdict key_add(struct cg_try *t, const struct cg_attempt *a)
{
        return cg_filtered(t, syscall(SYS_add_key, "user", "cellgate-selftest-inside", "x", 1UL,
                                      KEY_SPEC_PROCESS_KEYRING));
}

/* ---- FIFOs: a read-only mount does not stop writing into one */
static enum cg_verdict fifo_write(struct cg_try *t, const struct cg_attempt *a)
{
        int fd = open("../out/fifo", O_WRONLY | O_NONBLOCK);

        return cg_refused(t, fd < 0 ? -1 : write(fd, "x", 1));
}

static enum cg_verdict fifo_reopened(struct cg_try *t, const struct cg_attempt *a)
{
        int fd = open("../out/fifo", O_RDONLY | O_NONBLOCK | (int)a->call[0]);
        char path[64];

        snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        return cg_refused(t, fd < 0 ? -1 : open(path, O_WRONLY | O_NONBLOCK));
}

/* ---- what must work */
static enum cg_verdict own_sysv(struct cg_try *t, const struct cg_attempt *a)
{
        int id = shmget(IPC_PRIVATE, 4096, IPC_CREAT | 0600);
        long r = id;

        if (id >= 0)
                shmctl(id, IPC_RMID, NULL);
        return cg_possible(t, r);
}

static enum cg_verdict own_shm(struct cg_try *t, const struct cg_attempt *a)
{
        int fd = shm_open("/cellgate-selftest-own", O_RDWR | O_CREAT, 0600);

        if (fd >= 0)
                shm_unlink("/cellgate-selftest-own");
        return cg_possible(t, fd);
}

static enum cg_verdict own_fifo(struct cg_try *t, const struct cg_attempt *a)
{
        int fd;

        unlink("own-fifo");
        if (mkfifo("own-fifo", 0600) < 0)
                return cg_possible(t, -1);
        fd = open("own-fifo", O_RDWR | O_NONBLOCK);
        unlink("own-fifo");
        return cg_possible(t, fd < 0 ? -1 : write(fd, "x", 1));
}

static const struct cg_attempt attempts[] = {
        { "sysv-memory",
          "ipc|seccomp",
          false,
          CG_BARE_ALL,
          0,
          sysv_memory,
          "System V memory of a host program",
          NULL,
          NULL,
          { 0 } },
        { "sysv-queue",
          "ipc|seccomp",
          false,
          CG_BARE_ALL,
          0,
          sysv_queue,
          "System V messages of a host program",
          NULL,
          NULL,
          { 0 } },
        { "sysv-semaphore",
          "ipc|seccomp",
          false,
          CG_BARE_ALL,
          0,
          sysv_semaphore,
          "System V semaphores of a host program",
          NULL,
          NULL,
          { 0 } },
        { "sysv-list",
          "ipc|seccomp",
          false,
          CG_BARE_ALL,
          0,
          sysv_list,
          "the list of all System V memory",
          NULL,
          NULL,
          { 0 } },
        { "mqueue",
          "ipc|seccomp",
          false,
          CG_BARE_ALL,
          0,
          posix_queue,
          "a POSIX message queue of a host program",
          NULL,
          NULL,
          { 0 } },
        { "shm",
          "mount|landlock|broker",
          false,
          CG_BARE_ALL,
          0,
          posix_memory,
          "POSIX shared memory of a host program",
          NULL,
          NULL,
          { 0 } },
        { "shm-name", "mount", false, CG_BARE_ALL, 0, shm_listing, "that it exists", NULL, NULL, { 0 } },
        { "key-request",
          "seccomp",
          false,
          CG_BARE_ALL,
          0,
          key_request,
          "a key by its name (request_key)",
          NULL,
          NULL,
          { 0 } },
        { "key-search",
          "seccomp",
          false,
          CG_BARE_ALL,
          0,
          key_search,
          "a key of the user's keyring (keyctl)",
          NULL,
          NULL,
          { 0 } },
        { "key-read",
          "seccomp",
          false,
          CG_BARE_ALL,
          0,
          key_read,
          "a key's content by its number",
          NULL,
          NULL,
          { 0 } },
        { "key-add",
          "seccomp",
          false,
          CG_BARE_ALL,
          0,
          key_add,
          "a key left behind (add_key)",
          NULL,
          NULL,
          { 0 } },
        { "fifo-write",
          "landlock",
          false,
          CG_BARE_ALL,
          0,
          fifo_write,
          "writing into a host program's FIFO",
          NULL,
          NULL,
          { 0 } },
        { "fifo-reopen",
          "landlock",
          false,
          CG_BARE_ALL,
          0,
          fifo_reopened,
          "the same by /proc/self/fd of one opened for reading",
          NULL,
          NULL,
          { 0 } },
        { "fifo-path-fd",
          "landlock",
          false,
          CG_BARE_ALL,
          0,
          fifo_reopened,
          "the same by an O_PATH descriptor",
          NULL,
          NULL,
          { O_PATH } },
        { "own-sysv", "", true, 0, 0, own_sysv, "System V memory of its own", NULL, NULL, { 0 } },
        { "own-shm", "", true, 0, 0, own_shm, "POSIX shared memory of its own", NULL, NULL, { 0 } },
        { "own-fifo", "", true, 0, 0, own_fifo, "a FIFO of its own in the workspace", NULL, NULL, { 0 } },
};

CG_TABLE(ipc, "shared memory, queues, keys, FIFOs");
