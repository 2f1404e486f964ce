/*
 * The scene of `cellgate selftest`: a temporary folder, and objects outside of it that attempts try
 * to reach. Everything here is made for the run and removed at its end; nothing of the user's own
 * is touched.
 */
#include <linux/keyctl.h>
#include <mqueue.h>
#include <poll.h>
#include <pty.h>
#include <stdarg.h>
#include <sys/file.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>

#include "base/fd.h"
#include "base/installed.h"
#include "base/path.h"
#include "base/text.h"
#include "selftest/host/selftest.h"
#include "config.h"

#define SCENE_MAX       16384
#define CANARY_START_MS 10000
#define KEY_NAME        "cellgate-selftest"
#define STRAY           "work/stray.lock" /* locked and written by a process that outlives its attempt */
#define HIDDEN          "hidden-content-of-the-selftest"
#define PRIVATE         "private-content-of-the-selftest"
#define ARGUMENT        "cellgate-selftest-canary-argument"

/* Files of the scene, and its other folders, whose names end in /. */
static const struct {
        const char *path, *content;
} files[] = {
        { "work/mnt/", NULL },
        { "work/run/", NULL },
        { STRAY, "" },
        { "work/plain.txt", "plain\n" },
        { "work/tools/", NULL },
        { "work/.husky/pre-commit", "node tools/named.mjs\n" },
        /* denyWrite */
        { "work/keep.txt", "keep\n" },
        { "work/d/keep.txt", "keep\n" },
        { "work/g/h/keep.txt", "keep\n" },
        { "work/denied/inner.txt", "keep\n" },
        { "work/real/target.txt", "keep\n" },
        { "work/server/run.sh", "#!/bin/sh\nexec \"$@\"\n" },
        /* never written */
        { "work/.bashrc", "keep\n" },
        { "work/sub/.BASHRC", "keep\n" },
        { "work/.git/HEAD", "ref: refs/heads/main\n" },
        { "work/.git/config",
          "[core]\n\trepositoryformatversion = 1\n[extensions]\n\tworktreeConfig = true\n" },
        { "work/.git/hooks/", NULL },
        { "work/.git/objects/", NULL },
        { "work/.git/refs/", NULL },
        { "work/sub/.git/HEAD", "ref: refs/heads/main\n" },
        { "work/sub/.git/hooks/idle", "keep\n" },
        { "work/sub/.git/config", "[core]\n\thooksPath = ci/hooks\n\tfsmonitor = ci/watch\n" },
        { "work/sub/ci/watch", "keep\n" },
        { "work/of-user/hooks/", NULL },
        { "work/programs/", NULL },
        { "work/.vscode/", NULL },
        { "work/.claude/commands/", NULL },
        { "work/.claude/agents/", NULL },
        /* denyRead */
        { "work/secret.txt", HIDDEN },
        { "work/secrets/inner.txt", HIDDEN },
        { "work/mostly/shown.txt", "shown\n" },
        { "work/mostly/inner.txt", HIDDEN },
        { "work/sub/deeper/key.pem", HIDDEN },
        { "work/.env", HIDDEN },
        { "out/canary.txt", "canary\n" },
        { "out/spare.txt", "" },
        { "out/empty/", NULL },
        { "out/private.txt", PRIVATE },
        /* credentials */
        { "home/.profile", "keep\n" },
        { "home/.gitconfig", "[includeIf \"gitdir:~/\"]\n\tpath = ~/more.cfg\n" },
        { "home/more.cfg", "[core]\n\thooksPath = ~/../work/of-user/hooks\n" },
        { "home/.ssh/id_ed25519", HIDDEN },
        { "home/.npm/_logs/", NULL },
        { "home/.claude/debug/", NULL },
        { "home/.aws/credentials", HIDDEN },
        { "home/.gnupg/secring.gpg", HIDDEN },
        { "home/.netrc", HIDDEN },
        { "home/.kube/config", HIDDEN },
        { "home/.docker/config.json", HIDDEN },
        { "home/.config/gh/hosts.yml", HIDDEN },
        { "home/.npmrc", HIDDEN },
        { "home/.git-credentials", HIDDEN },
        { "home/.mozilla/cookies.sqlite", HIDDEN },
        { "home/.bash_history", HIDDEN },
};

static const char settings[] =
        "{\"network\": {\"allowedDomains\": [\"127.0.0.1:%A\", \"localhost:%A\", \"127.0.0.1:%D\", \"*.selftest.example\"%N],\n"
        "  \"deniedDomains\": [\"127.0.0.1:%D\", \"bad.selftest.example\"]},\n"
        " \"filesystem\": {\"allowWrite\": [\".\"],\n"
        "  \"denyWrite\": [\"keep.txt\", \"d/keep.txt\", \"g/h/keep.txt\", \"denied\", \"link-real\", \"absent.txt\", \"absentdir/deep.txt\",\n"
        "    \"sub/*.locked\", \"later/*.locked\"],\n"
        "  \"denyRead\": [\"secret.txt\", \"secrets\", \"mostly\", \".env\", \"**/*.pem\"], \"allowRead\": [\"mostly/shown.txt\"]},\n"
        " \"cellgate\": {\"env\": [\"PATH\", \"HOME\"], \"hideCredentials\": true%T}}\n";

const char *cg_scene_path(const struct cg_scene *s, const char *name, char *buf)
{
        snprintf(buf, PATH_MAX, "%.3000s/%s", s->dir, name);
        return buf;
}

const char *cg_scene_search_path(const struct cg_scene *s, char buf[CG_SCENE_SEARCH_MAX])
{
        const char *path = getenv("PATH");

        snprintf(buf, CG_SCENE_SEARCH_MAX, "%.4000s:%.3000s/work/programs:%.3000s/work/programs-later",
                 path ?: "/usr/bin:/bin", s->dir, s->dir);
        return buf;
}

/* Adds parameters of the attempts. */
static __attribute__((format(printf, 3, 4))) int scene_set(struct cg_scene *s, struct cg_err *err,
                                                           const char *fmt, ...)
{
        char line[PATH_MAX + 100];
        va_list ap;

        va_start(ap, fmt);
        vsnprintf(line, sizeof(line), fmt, ap);
        va_end(ap);
        cg_buf_addf(&s->text, "%s\n", line);
        return cg_buf_end(&s->text, err);
}

void cg_scene_add_layers(struct cg_buf *out, const json_t *info)
{
        json_t *layer;
        size_t i;

        cg_buf_adds(out, "layers=");
        json_array_foreach(json_object_get(info, "layers"), i, layer) {
                if (json_is_string(layer))
                        cg_buf_addf(out, "%s ", json_string_value(layer));
        }
        cg_buf_adds(out, "proxy environment descriptors session\n");
}

static int write_file(const char *path, const char *content, struct cg_err *err)
{
        cg_auto_fd int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);

        if (fd < 0)
                return cg_fail_errno(err, "selftest: %s", path);
        return cg_write_all(fd, content, strlen(content), err);
}

static int make_files(const struct cg_scene *s, struct cg_err *err)
{
        static const struct {
                const char *target, *path;
                bool hard;
        } links[] = {
                { "work/keep.txt", "work/keep-alias.txt", true },
                { "work/secret.txt", "work/secret-alias.txt", true },
                { "real/target.txt", "work/link-real", false },
                { "../work/zshenv-of-home", "home/.zshenv", false },
                { "../out/canary.txt", "work/link-out", false },
                { "secret.txt", "work/link-secret", false },
        };
        char path[PATH_MAX], target[PATH_MAX], folder[PATH_MAX];
        mode_t old = umask(022);
        int r = 0;

        for (size_t i = 0; i < CG_ARRAY_LEN(files) && r == 0; i++) {
                cg_scene_path(s, files[i].path, path);
                cg_path_parent(path, folder);
                r = cg_make_dirs(folder, 0755, err);
                if (r == 0 && files[i].content)
                        r = write_file(path, files[i].content, err);
        }
        umask(old);
        if (r < 0)
                return r;
        for (size_t i = 0; i < CG_ARRAY_LEN(links); i++) {
                cg_scene_path(s, links[i].path, path);
                if ((links[i].hard ? link(cg_scene_path(s, links[i].target, target), path)
                                   : symlink(links[i].target, path)) < 0)
                        return cg_fail_errno(err, "selftest: %s", path);
        }
        if (mkfifo(cg_scene_path(s, "out/fifo", path), 0600) < 0)
                return cg_fail_errno(err, "selftest: %s", path);
        return 0;
}

/*
 * In the home folder, if it can be written: kernels have a /tmp of their own, so that writing there
 * would prove nothing.
 */
static int make_folder(struct cg_scene *s, struct cg_err *err)
{
        static const char in_tmp[] = "/tmp/.cellgate-selftest-XXXXXX";
        const char *home = getenv("HOME");

        snprintf(s->dir, sizeof(s->dir), "%.3000s/.cellgate-selftest-XXXXXX",
                 home && home[0] == '/' ? home : "/nowhere");
        if (mkdtemp(s->dir))
                return 0;
        memcpy(s->dir, in_tmp, sizeof(in_tmp));
        if (mkdtemp(s->dir))
                return 0;
        s->dir[0] = '\0';
        return cg_fail_errno(err, "selftest: a folder in %s or /tmp", home ?: "the home folder");
}

/* Bound by a relative name: the full path may be too long for a socket's address. */
static int unix_socket(const struct cg_scene *s, const char *name, int type, int *ret, struct cg_err *err)
{
        struct sockaddr_un at = { .sun_family = AF_UNIX };
        bool abstract = name[0] == '@';
        socklen_t len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(name) + !abstract);
        cg_auto_fd int here = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC);
        char path[PATH_MAX];
        int r = 0;

        snprintf(at.sun_path + abstract, sizeof(at.sun_path) - abstract, "%s", name + abstract);
        *ret = socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (*ret < 0 || here < 0 || chdir(cg_scene_path(s, "out", path)) < 0)
                return cg_fail_errno(err, "selftest: socket %s", name);
        if (bind(*ret, (struct sockaddr *)&at, len) < 0 || (type == SOCK_STREAM && listen(*ret, 8) < 0))
                r = cg_fail_errno(err, "selftest: socket %s", name);
        if (fchdir(here) < 0 && r == 0)
                r = cg_fail_errno(err, "selftest: back to the working folder");
        return r;
}

static int make_sockets(struct cg_scene *s, struct cg_err *err)
{
        static const char *const known[] = { "/run/docker.sock", "/var/run/docker.sock",
                                             "/run/containerd/containerd.sock", "/run/dbus/system_bus_socket",
                                             "/run/systemd/private" };
        char path[PATH_MAX], name[64];
        size_t i = 0;

        snprintf(name, sizeof(name), "@cellgate-selftest-%.16s", s->secret);
        if (unix_socket(s, "stream", SOCK_STREAM, &s->stream, err) < 0 ||
            unix_socket(s, "dgram", SOCK_DGRAM, &s->dgram, err) < 0 ||
            unix_socket(s, name, SOCK_STREAM, &s->abstract, err) < 0)
                return -1;
        s->fifo = open(cg_scene_path(s, "out/fifo", path), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
        if (s->fifo < 0)
                return cg_fail_errno(err, "selftest: %s", path);
        while (i < CG_ARRAY_LEN(known) && access(known[i], W_OK) < 0)
                i++;
        if (i < CG_ARRAY_LEN(known) && scene_set(s, err, "unix_known=%s", known[i]) < 0)
                return -1;
        return scene_set(s, err, "unix_stream=../out/stream\nunix_dgram=../out/dgram\nunix_abstract=%s",
                         name);
}

/* Shared memory, queues, a key, a terminal. Missing ones have their attempts skipped. */
static int make_shared(struct cg_scene *s, struct cg_err *err)
{
        struct mq_attr attr = { .mq_maxmsg = 1, .mq_msgsize = 64 };
        key_t key = (key_t)(0x43470000 | (getpid() & 0xffff));
        char name[64];
        void *p;
        int fd, slave;

        s->shm_id = shmget(key, 4096, IPC_CREAT | IPC_EXCL | 0600);
        s->msg_id = msgget(key, IPC_CREAT | IPC_EXCL | 0600);
        s->sem_id = semget(key, 1, IPC_CREAT | IPC_EXCL | 0600);
        p = s->shm_id < 0 ? (void *)-1 : shmat(s->shm_id, NULL, 0);
        if (p != (void *)-1) {
                memcpy(p, s->secret, sizeof(s->secret));
                shmdt(p);
        }
        snprintf(name, sizeof(name), "/cellgate-selftest-%.16s", s->secret);
        fd = shm_open(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        if (fd < 0 || cg_write_all(fd, s->secret, strlen(s->secret), err) < 0)
                return cg_fail_errno(err, "selftest: shared memory %s", name);
        close(fd);
        s->mqueue = mq_open(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600, &attr);
        if (s->mqueue >= 0 && scene_set(s, err, "mqueue=%s", name + 1) < 0)
                return -1;
        if (scene_set(s, err, "sysv_key=%ld\nshm=%s", (long)key, name + 1) < 0)
                return -1;

        s->key = syscall(SYS_add_key, "user", KEY_NAME, s->secret, strlen(s->secret), KEY_SPEC_USER_KEYRING);
        if (s->key >= 0) {
                syscall(SYS_keyctl, KEYCTL_SETPERM, s->key, 0x3f3f0000);
                syscall(SYS_keyctl, KEYCTL_LINK, s->key, KEY_SPEC_SESSION_KEYRING);
                if (scene_set(s, err, "key=" KEY_NAME "\nkey_serial=%ld", s->key) < 0)
                        return -1;
        }

        if (openpty(&s->terminal, &slave, s->terminal_name, NULL, NULL) < 0) {
                s->terminal = -1;
                return 0;
        }
        close(slave);
        fcntl(s->terminal, F_SETFD, FD_CLOEXEC);
        return scene_set(s, err, "terminal=%s", s->terminal_name);
}

/* ---- the canary */
static int start_canary(struct cg_scene *s, struct cg_err *err)
{
        char cwd[PATH_MAX], path[PATH_MAX], env[3][100];
        static const char *const argv[] = { "cellgate-cli", "selftest", "--canary", ARGUMENT, NULL };
        char *const envp[] = { env[0], env[1], env[2], NULL };
        cg_auto_fd int file = open(cg_scene_path(s, "out/private.txt", path), O_RDONLY | O_CLOEXEC);
        struct cg_proc_fd fds[] = { { -1, 0 }, { -1, 1 }, { 2, 2 }, { file, 60 } };
        struct cg_proc_spec spec = CG_PROC_SPEC(CG_INSTALLED(CG_LIBEXECDIR "/cellgate-cli"), argv, envp, fds,
                                                .cwd = cg_scene_path(s, "work", cwd),
                                                .die_with_parent = true);
        int in[2], out[2];
        char buf[2000];
        size_t n = 0;
        int r;

        if (file < 0 || pipe2(in, O_CLOEXEC) < 0)
                return cg_fail_errno(err, "selftest: %s", path);
        if (pipe2(out, O_CLOEXEC) < 0) {
                close(in[0]);
                close(in[1]);
                return cg_fail_errno(err, "selftest: pipe");
        }
        snprintf(env[0], sizeof(env[0]), "CELLGATE_SELFTEST_SECRET=%s", s->secret);
        snprintf(env[1], sizeof(env[1]), "CELLGATE_SELFTEST_CANARY=canary-%s", s->secret);
        snprintf(env[2], sizeof(env[2]), "CELLGATE_SELFTEST_MEMORY=m%.10s", s->secret);
        fds[0].fd = in[0];
        fds[1].fd = out[1];
        r = cg_proc_spawn(&spec, &s->canary, err);
        close(in[0]);
        close(out[1]);
        s->canary_in = in[1];
        s->canary_out = out[0];
        if (r < 0)
                return r;
        if (scene_set(s, err,
                      "canary_pid=%d\ncanary_argument=" ARGUMENT
                      "\ncanary_environ=canary-%s\ncanary_memory=m%.10s\n"
                      "canary_content=" PRIVATE "\ncanary_exe=cellgate-cli",
                      (int)s->canary.pid, s->secret, s->secret) < 0)
                return -1;

        /* Its ports and addresses, up to the line "end". */
        while (n < sizeof(buf) - 1) {
                ssize_t got = cg_wait_fd(s->canary_out, POLLIN, CANARY_START_MS, err) == 0
                                      ? read(s->canary_out, buf + n, sizeof(buf) - 1 - n)
                                      : -1;

                if (got <= 0)
                        return cg_fail(err, CG_E_CLOSED,
                                       "selftest: the process that attempts are about did not start");
                n += (size_t)got;
                buf[n] = '\0';
                if (n >= 4 && strcmp(buf + n - 4, "end\n") == 0)
                        break;
        }
        buf[n - 4] = '\0';
        cg_buf_adds(&s->text, buf);
        return cg_buf_end(&s->text, err);
}

/* A name in /etc/hosts that resolves to loopback. It needs a dot: settings allow no others. */
static int find_loopback_name(struct cg_scene *s, struct cg_err *err)
{
        cg_auto_free char *text = NULL;
        char *save = NULL, address[64], name[256];
        size_t len;

        if (cg_read_file("/etc/hosts", 1 << 20, &text, &len, NULL) < 0)
                return 0;
        for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
                if (sscanf(line, "%63s %255s", address, name) == 2 && strncmp(address, "127.", 4) == 0 &&
                    strchr(name, '.') && !strpbrk(name, "\"\\%#"))
                        return scene_set(s, err, "loopback_name=%s", name);
        return 0;
}

int cg_scene_make(struct cg_scene *s, bool bare, struct cg_err *err)
{
        char path[PATH_MAX];

        *s = (struct cg_scene){ .bare = bare,
                                .tier = s->tier,
                                .canary = CG_PROC_NONE,
                                .canary_out = -1,
                                .canary_in = -1,
                                .terminal = -1,
                                .stream = -1,
                                .abstract = -1,
                                .dgram = -1,
                                .fifo = -1,
                                .shm_id = -1,
                                .msg_id = -1,
                                .sem_id = -1,
                                .mqueue = -1,
                                .key = -1 };
        cg_buf_init(&s->text, SCENE_MAX);
        if (cg_random_hex(s->secret, 16, err) < 0 || make_folder(s, err) < 0 || make_files(s, err) < 0 ||
            make_sockets(s, err) < 0 || make_shared(s, err) < 0 || start_canary(s, err) < 0 ||
            find_loopback_name(s, err) < 0)
                return -1;
        return scene_set(s, err, "secret=%s\nhidden_content=" HIDDEN "\nhidden_path=%s\nport_80=80",
                         s->secret, cg_scene_path(s, "work/secret.txt", path));
}

/* %A, %D: ports; %N: a name that resolves to loopback, where the machine has one; %T: the tier. */
static void put_setting(const struct cg_scene *s, char what, struct cg_buf *out)
{
        static const char *const names[] = {
                ['A'] = "\nport_allowed=", ['D'] = "\nport_denied=", ['N'] = "\nloopback_name="
        };
        const char *value;
        int n;

        if (what == 'T') {
                if (s->tier)
                        cg_buf_addf(out, ", \"tier\": \"%s\"", s->tier);
                return;
        }
        value = strstr(s->text.data, names[(unsigned char)what]);
        if (!value)
                return;
        value += strlen(names[(unsigned char)what]);
        n = (int)strcspn(value, "\n");
        if (what == 'N')
                cg_buf_addf(out, ", \"%.*s\"", n, value);
        else
                cg_buf_add(out, value, (size_t)n);
}

int cg_scene_write_settings(const struct cg_scene *s, struct cg_err *err)
{
        cg_auto_buf struct cg_buf out;
        char path[PATH_MAX];

        cg_buf_init(&out, SCENE_MAX);
        for (const char *p = settings; *p; p++)
                if (*p == '%')
                        put_setting(s, *++p, &out);
                else
                        cg_buf_add(&out, p, 1);
        if (cg_buf_end(&out, err) < 0)
                return -1;
        return write_file(cg_scene_path(s, "settings.json", path), out.data, err);
}

int cg_scene_write(const struct cg_scene *s, struct cg_err *err)
{
        char path[PATH_MAX];

        return write_file(cg_scene_path(s, "scene", path), s->text.data, err);
}

void cg_scene_end(struct cg_scene *s)
{
        char name[64];

        cg_closep_(&s->canary_in);
        if (s->canary.pid)
                cg_proc_end(&s->canary, false, 1000);
        if (s->shm_id >= 0)
                shmctl(s->shm_id, IPC_RMID, NULL);
        if (s->msg_id >= 0)
                msgctl(s->msg_id, IPC_RMID, NULL);
        if (s->sem_id >= 0)
                semctl(s->sem_id, 0, IPC_RMID);
        snprintf(name, sizeof(name), "/cellgate-selftest-%.16s", s->secret);
        if (s->secret[0]) {
                shm_unlink(name);
                mq_unlink(name);
        }
        if (s->key >= 0) {
                syscall(SYS_keyctl, KEYCTL_UNLINK, s->key, KEY_SPEC_SESSION_KEYRING);
                syscall(SYS_keyctl, KEYCTL_UNLINK, s->key, KEY_SPEC_USER_KEYRING);
        }
        for (size_t i = 0; i < 7; i++) {
                int fd = (const int[]){ s->canary_out, s->terminal, s->stream, s->abstract,
                                        s->dgram,      s->fifo,     s->mqueue }[i];

                cg_closep_(&fd);
        }
        if (s->dir[0])
                cg_remove_tree(s->dir, NULL);
        cg_buf_fini(&s->text);
}

/* ---- the state after the run */

static enum cg_outcome after_files(const struct cg_scene *s, char *note, size_t size)
{
        for (size_t i = 0; i < CG_ARRAY_LEN(files); i++) {
                cg_auto_free char *text = NULL;
                char path[PATH_MAX];
                size_t len;

                if (!files[i].content || strcmp(files[i].path, STRAY) == 0 ||
                    (cg_read_file(cg_scene_path(s, files[i].path, path), 4096, &text, &len, NULL) == 0 &&
                     strcmp(text, files[i].content) == 0))
                        continue;
                snprintf(note, size, "%s was changed", files[i].path);
                return CG_OUT_HOLE;
        }
        return CG_OUT_HELD;
}

static enum cg_outcome after_absent(const struct cg_scene *s, char *note, size_t size)
{
        static const char *const names[] = { "work/absent.txt",
                                             "work/absentdir",
                                             "work/.zshrc",
                                             "work/.profile",
                                             "work/.mcp.json",
                                             "work/.idea",
                                             "work/.git/hooks/pre-commit",
                                             "out/new.txt",
                                             "out/by-link.txt",
                                             "beside.txt",
                                             "home/new.txt" };
        char path[PATH_MAX];
        struct stat st;

        for (size_t i = 0; i < CG_ARRAY_LEN(names); i++) {
                if (lstat(cg_scene_path(s, names[i], path), &st) == 0) {
                        snprintf(note, size, "%s is there", names[i]);
                        return CG_OUT_HOLE;
                }
        }
        return CG_OUT_HELD;
}

static enum cg_outcome after_sockets(const struct cg_scene *s, char *note, size_t size)
{
        static const char *const names[] = { "the socket with a path", "the abstract socket",
                                             "the datagram socket", "the FIFO" };
        struct pollfd fds[] = { { .fd = s->stream, .events = POLLIN },
                                { .fd = s->abstract, .events = POLLIN },
                                { .fd = s->dgram, .events = POLLIN },
                                { .fd = s->fifo, .events = POLLIN } };

        if (poll(fds, CG_ARRAY_LEN(fds), 0) <= 0)
                return CG_OUT_HELD;
        for (size_t i = 0; i < CG_ARRAY_LEN(fds); i++)
                if (fds[i].revents & POLLIN)
                        snprintf(note, size, "something came to %s", names[i]);
        return note[0] ? CG_OUT_HOLE : CG_OUT_HELD;
}

static enum cg_outcome after_processes(const struct cg_scene *s, char *note, size_t size)
{
        char path[PATH_MAX];
        cg_auto_fd int fd = open(cg_scene_path(s, STRAY, path), O_RDWR | O_CLOEXEC);
        struct stat st;

        if (fd < 0 || fstat(fd, &st) < 0 || st.st_size == 0) {
                snprintf(note, size, "the attempt \"stray-process\" was not made");
                return CG_OUT_SKIP;
        }
        if (flock(fd, LOCK_EX | LOCK_NB) == 0)
                return CG_OUT_HELD;
        snprintf(note, size, "a process that was started inside still runs");
        return CG_OUT_HOLE;
}

static const struct cg_attempt_line after_lines[] = {
#define AFTER(name_, layer_, check_, what_) \
        { \
                .name = name_, .group = "afterwards", .layer = layer_, .bare = "all", .what = what_, \
                .command = true, .check = check_ \
        }
        AFTER("after-files", "mount|landlock", after_files, "files outside and protected ones are unchanged"),
        AFTER("after-absent", "mount|landlock", after_absent, "no file was made where that is denied"),
        AFTER("after-sockets", "seccomp", after_sockets, "no data reached the host's sockets and FIFOs"),
        AFTER("after-processes", "pid", after_processes, "no process outlived the sandbox"),
#undef AFTER
};
const struct cg_attempt_table cg_attempts_after = { after_lines, CG_ARRAY_LEN(after_lines) };

void cg_scene_after(const struct cg_scene *s, struct cg_report *r, const struct cg_attempt_list *l)
{
        for (size_t i = 0; i < l->n; i++) {
                char note[PATH_MAX] = "";

                if (!l->v[i].check || !l->v[i].wanted)
                        continue;
                cg_report_line(r, &l->v[i], "sandbox", l->v[i].check(s, note, sizeof(note)), note);
        }
}
