/* Files that must not be read: those of denyRead, and credentials. Runs inside the sandbox. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "selftest/inside/attempt.h"

static enum cg_verdict read_it(struct cg_try *t, const struct cg_attempt *a)
{
        struct cg_attempt b = { .arg = a->arg, .arg2 = a->arg2 ? a->arg2 : "hidden_content" };

        return cg_try_leak(t, &b);
}

static enum cg_verdict list_it(struct cg_try *t, const struct cg_attempt *a)
{
        DIR *d = opendir(a->arg);
        struct dirent *e;

        if (!d)
                return cg_refused(t, -1);
        while ((e = readdir(d))) {
                if (e->d_name[0] != '.')
                        return cg_hole(t, "it lists %.100s", e->d_name);
        }
        return cg_held(t, "it is empty");
}

static enum cg_verdict by_link(struct cg_try *t, const struct cg_attempt *a)
{
        struct cg_attempt b = { .arg = "peek", .arg2 = "hidden_content" };
        enum cg_verdict v;

        if (symlink(a->arg, "peek") < 0)
                return cg_fails(t, "no link of its own: %s", cg_errno_name(errno));
        v = cg_try_leak(t, &b);
        unlink("peek");
        return v;
}

static enum cg_verdict by_hard_link(struct cg_try *t, const struct cg_attempt *a)
{
        struct cg_attempt b = { .arg = "peek", .arg2 = "hidden_content" };
        enum cg_verdict v;

        if (link(a->arg, "peek") < 0)
                return cg_refused(t, -1);
        v = cg_try_leak(t, &b);
        unlink("peek");
        return v;
}

/* Renamed, it would have a name without a cover. */
static enum cg_verdict by_rename(struct cg_try *t, const struct cg_attempt *a)
{
        struct cg_attempt b = { .arg = a->arg2, .arg2 = "hidden_content" };
        enum cg_verdict v;

        if (rename(a->arg, "moved-away") < 0)
                return cg_refused(t, -1);
        v = cg_try_leak(t, &b);
        rename("moved-away", a->arg);
        return v;
}

static enum cg_verdict by_exchange(struct cg_try *t, const struct cg_attempt *a)
{
        struct cg_attempt b = { .arg = "peek", .arg2 = "hidden_content" };
        int fd = open("peek", O_WRONLY | O_CREAT, 0644);
        enum cg_verdict v;

        if (fd >= 0)
                close(fd);
        if (syscall(SYS_renameat2, AT_FDCWD, "peek", AT_FDCWD, "secret.txt", RENAME_EXCHANGE) < 0) {
                v = cg_refused(t, -1);
        } else {
                v = cg_try_leak(t, &b);
                syscall(SYS_renameat2, AT_FDCWD, "peek", AT_FDCWD, "secret.txt", RENAME_EXCHANGE);
        }
        unlink("peek");
        return v;
}

static enum cg_verdict by_path_fd(struct cg_try *t, const struct cg_attempt *a)
{
        int fd = open("secret.txt", O_PATH | O_CLOEXEC);
        char path[64];
        struct cg_attempt b = { .arg = path, .arg2 = "hidden_content" };

        snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        return fd < 0 ? cg_refused(t, fd) : cg_try_leak(t, &b);
}

static enum cg_verdict by_mmap(struct cg_try *t, const struct cg_attempt *a)
{
        int fd = open("secret.txt", O_RDONLY);
        void *p;

        if (fd < 0)
                return cg_refused(t, fd);
        p = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, fd, 0);
        return cg_refused(t, p == MAP_FAILED ? -1 : 0);
}

static enum cg_verdict by_exec(struct cg_try *t, const struct cg_attempt *a)
{
        static char *const argv[] = { (char *)"x", NULL };

        execve("secret.txt", argv, NULL);
        /*
         * A file that is not executable fails with EACCES anyway; ENOEXEC would mean that it was
         * read.
         */
        return errno == ENOEXEC ? cg_hole(t, "its beginning was read")
                                : cg_held(t, "%s", cg_errno_name(errno));
}

static enum cg_verdict write_hidden(struct cg_try *t, const struct cg_attempt *a)
{
        return cg_refused(t, open("secret.txt", O_WRONLY | O_APPEND));
}

static enum cg_verdict put_into_hidden(struct cg_try *t, const struct cg_attempt *a)
{
        return cg_try_create(t, a);
}

static enum cg_verdict size_of(struct cg_try *t, const struct cg_attempt *a)
{
        struct stat st;

        if (stat("secret.txt", &st) < 0)
                return cg_refused(t, -1);
        return st.st_size ? cg_hole(t, "its size is shown: %lld", (long long)st.st_size)
                          : cg_held(t, "0 bytes");
}

static enum cg_verdict shadow(struct cg_try *t, const struct cg_attempt *a)
{
        char buf[512];
        long n = cg_slurp(a->arg, buf, sizeof(buf));

        return n > 0 ? cg_hole(t, "it can be read")
                     : cg_held(t, "%s", n < 0 ? cg_errno_name(errno) : "empty");
}

static enum cg_verdict readable(struct cg_try *t, const struct cg_attempt *a)
{
        char buf[64];

        return cg_possible(t, cg_slurp(a->arg, buf, sizeof(buf)));
}

static const struct cg_attempt attempts[] = {
#define HIDE(name, fn, what, path) \
        { \
                name, "mount|landlock", false, CG_BARE_ALL, 0, fn, what, path, NULL, \
                { \
                        0 \
                } \
        }
        HIDE("hide-read", read_it, "a file of denyRead", "secret.txt"),
        { "hide-size", "mount", false, CG_BARE_ALL, 0, size_of, "its size", NULL, NULL, { 0 } },
        HIDE("hide-folder-file", read_it, "a file in a folder of denyRead", "secrets/inner.txt"),
        HIDE("hide-folder-list", list_it, "the names in it", "secrets"),
        HIDE("hide-pattern", read_it, "a file that a pattern of denyRead names", "sub/deeper/key.pem"),
        HIDE("hide-symlink", by_link, "a link to it", "secret.txt"),
        HIDE("hide-old-symlink", read_it, "a link that was there", "link-secret"),
        HIDE("hide-hard-link", by_hard_link, "a second name for it", "secret.txt"),
        HIDE("hide-old-hard-link", read_it, "a second name that it always had", "secret-alias.txt"),
        { "hide-rename",
          "mount|landlock",
          false,
          CG_BARE_ALL,
          0,
          by_rename,
          "it moved away",
          "secret.txt",
          "moved-away",
          { 0 } },
        { "hide-folder-rename",
          "mount|landlock",
          false,
          CG_BARE_ALL,
          0,
          by_rename,
          "its folder moved away",
          "secrets",
          "moved-away/inner.txt",
          { 0 } },
        { "hide-parent-rename",
          "mount|landlock",
          false,
          CG_BARE_ALL,
          0,
          by_rename,
          "the folder above a pattern's match moved away",
          "sub",
          "moved-away/deeper/key.pem",
          { 0 } },
        HIDE("hide-exchange", by_exchange, "it exchanged for another", NULL),
        HIDE("hide-path-fd", by_path_fd, "an O_PATH descriptor of it", NULL),
        HIDE("hide-mmap", by_mmap, "it mapped into memory", NULL),
        HIDE("hide-dots", read_it, "its name by way of other folders", "d/../././/secret.txt"),
        HIDE("hide-proc-cwd", read_it, "its name by way of /proc/self/cwd", "/proc/self/cwd/secret.txt"),
        HIDE("hide-write", write_hidden, "writing it", NULL),
        HIDE("hide-folder-put", put_into_hidden, "putting something into a hidden folder", "secrets/new.txt"),
        { "hide-dotenv",
          "mount|landlock",
          false,
          CG_BARE_ALL,
          0,
          read_it,
          "secrets in .env",
          ".env",
          NULL,
          { 0 } },
#undef HIDE
        { "hide-exec",
          "mount|landlock",
          false,
          CG_BARE_NONE,
          0,
          by_exec,
          "it run as a program",
          NULL,
          NULL,
          { 0 } },
#define HIDE(name, path, what) \
        { \
                name, "mount|landlock", false, CG_BARE_ALL, 0, read_it, what, path, NULL, \
                { \
                        0 \
                } \
        }
        HIDE("cred-ssh", "../home/.ssh/id_ed25519", "keys in ~/.ssh"),
        HIDE("cred-aws", "../home/.aws/credentials", "~/.aws"),
        HIDE("cred-gnupg", "../home/.gnupg/secring.gpg", "~/.gnupg"),
        HIDE("cred-netrc", "../home/.netrc", "~/.netrc"),
        HIDE("cred-kube", "../home/.kube/config", "~/.kube"),
        HIDE("cred-docker", "../home/.docker/config.json", "~/.docker"),
        HIDE("cred-github", "../home/.config/gh/hosts.yml", "~/.config/gh"),
        HIDE("cred-npm", "../home/.npmrc", "~/.npmrc"),
        HIDE("cred-git", "../home/.git-credentials", "~/.git-credentials"),
        HIDE("cred-browser", "../home/.mozilla/cookies.sqlite", "a browser's cookies"),
        HIDE("cred-history", "../home/.bash_history", "what was typed"),
#undef HIDE
#define SYSTEM(name, path, what) \
        { \
                name, "mount|landlock", false, CG_BARE_MACHINE, 0, shadow, what, path, NULL, \
                { \
                        0 \
                } \
        }
        SYSTEM("cred-shadow", "/etc/shadow", "passwords in /etc/shadow"),
        SYSTEM("cred-gshadow", "/etc/gshadow", "group passwords"),
        SYSTEM("cred-sudoers", "/etc/sudoers", "/etc/sudoers"),
        SYSTEM("cred-host-key", "/etc/ssh/ssh_host_ed25519_key", "the machine's ssh key"),
        SYSTEM("cred-backup", "/var/backups/shadow.bak", "copies of them"),
#undef SYSTEM
        { "read-beside", "", true, 0, 0, readable, "what is not hidden beside it", "plain.txt", NULL, { 0 } },
        { "read-again",
          "",
          true,
          0,
          0,
          readable,
          "allowRead within a hidden folder",
          "mostly/shown.txt",
          NULL,
          { 0 } },
        { "read-system", "", true, 0, 0, readable, "the system's files", "/etc/passwd", NULL, { 0 } },
};

CG_TABLE(hidden, "hidden files");
