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
        return cg_hole_if(t, secret && strncmp(p, secret, strlen(secret)) == 0, "its content was read",
                          "another one");
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
        return cg_held(t, "%s", cg_error_or(n, "it is not in the list"));
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

/* ---- required operations */
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
        return cg_possible(t, cg_write_to(fd, "x"));
}

static const struct cg_attempt attempts[] = {
        CG_DENY("sysv-memory", "ipc|seccomp", sysv_memory, "System V memory of a host program"),
        CG_DENY("sysv-queue", "ipc|seccomp", sysv_queue, "System V messages of a host program"),
        CG_DENY("sysv-semaphore", "ipc|seccomp", sysv_semaphore, "System V semaphores of a host program"),
        CG_DENY("sysv-list", "ipc|seccomp", sysv_list, "the list of all System V memory"),
        CG_DENY("mqueue", "ipc|seccomp", posix_queue, "a POSIX message queue of a host program"),
        CG_DENY("shm", "mount|landlock|broker", posix_memory, "POSIX shared memory of a host program"),
        CG_DENY("shm-name", "mount", shm_listing, "that it exists"),
        CG_DENY("key-request", "seccomp", key_request, "a key by its name (request_key)"),
        CG_DENY("key-search", "seccomp", key_search, "a key of the user's keyring (keyctl)"),
        CG_DENY("key-read", "seccomp", key_read, "a key's content by its number"),
        CG_DENY("key-add", "seccomp", cg_try_call, "a key left behind (add_key)",
                .call = { SYS_add_key, CG_ADDR("user"), CG_ADDR("cellgate-selftest-inside"), CG_ADDR("x"), 1,
                          KEY_SPEC_PROCESS_KEYRING }),
        /* A read-only mount does not prevent writing into a FIFO. */
        CG_DENY("fifo-write", "landlock", cg_try_append, "writing into a host program's FIFO",
                .arg = "../out/fifo"),
        CG_DENY("fifo-reopen", "landlock", cg_try_reopen,
                "the same by /proc/self/fd of one opened for reading", .arg = "../out/fifo",
                .call = { O_RDONLY | O_NONBLOCK, O_WRONLY | O_NONBLOCK }),
        CG_DENY("fifo-path-fd", "landlock", cg_try_reopen, "the same by an O_PATH descriptor",
                .arg = "../out/fifo", .call = { O_PATH, O_WRONLY | O_NONBLOCK }),
        CG_ALLOW("own-sysv", own_sysv, "System V memory of its own"),
        CG_ALLOW("own-shm", own_shm, "POSIX shared memory of its own"),
        CG_ALLOW("own-fifo", own_fifo, "a FIFO of its own in the workspace"),
};

CG_TABLE(ipc, "shared memory, queues, keys, FIFOs");
