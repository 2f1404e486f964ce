/* Files that must not be read: those of denyRead, and credentials. Runs inside the sandbox. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "selftest/inside/attempt.h"

static enum cg_verdict by_path_fd(struct cg_try *t, const struct cg_attempt *a)
{
        int fd = open("secret.txt", O_PATH | O_CLOEXEC);
        char path[64];
        const struct cg_attempt b = { .arg = path };

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
        /* A file that is not executable fails with EACCES; ENOEXEC would mean that it was read. */
        return cg_hole_if(t, errno == ENOEXEC, "its beginning was read", cg_errno_name(errno));
}

static enum cg_verdict size_of(struct cg_try *t, const struct cg_attempt *a)
{
        struct stat st;

        if (stat("secret.txt", &st) < 0)
                return cg_refused(t, -1);
        if (st.st_size)
                return cg_hole(t, "its size is shown: %lld", (long long)st.st_size);
        return cg_held(t, "0 bytes");
}

static enum cg_verdict shadow(struct cg_try *t, const struct cg_attempt *a)
{
        char buf[512];
        long n = cg_slurp(a->arg, buf, sizeof(buf));

        if (n > 0)
                return cg_hole(t, "it can be read");
        return cg_held(t, "%s", n < 0 ? cg_errno_name(errno) : "empty");
}

static const struct cg_attempt attempts[] = {
#define HIDE(name, run, what, path, ...) CG_DENY(name, "mount|landlock", run, what, .arg = path, __VA_ARGS__)
        HIDE("hide-read", cg_try_leak, "a file of denyRead", "secret.txt"),
        CG_DENY("hide-size", "mount", size_of, "its size"),
        HIDE("hide-folder-file", cg_try_leak, "a file in a folder of denyRead", "secrets/inner.txt"),
        HIDE("hide-folder-list", cg_try_list, "the names in it", "secrets"),
        HIDE("hide-pattern", cg_try_leak, "a file that a pattern of denyRead names", "sub/deeper/key.pem"),
        HIDE("hide-symlink", cg_try_change, "a link to it", "secret.txt", .change = CG_SYMLINK,
             .arg2 = "peek", .then = cg_try_leak, .at = "peek"),
        HIDE("hide-old-symlink", cg_try_leak, "a link of the scene", "link-secret"),
        HIDE("hide-hard-link", cg_try_change, "a hard link to it", "secret.txt", .change = CG_LINK,
             .arg2 = "peek", .then = cg_try_leak, .at = "peek"),
        HIDE("hide-old-hard-link", cg_try_leak, "a hard link of the scene", "secret-alias.txt"),
        HIDE("hide-rename", cg_try_change, "it moved away", "secret.txt", .change = CG_RENAME,
             .arg2 = "moved-away", .then = cg_try_leak, .at = "moved-away"),
        HIDE("hide-folder-rename", cg_try_change, "its folder moved away", "secrets", .change = CG_RENAME,
             .arg2 = "moved-away", .then = cg_try_leak, .at = "moved-away/inner.txt"),
        HIDE("hide-parent-rename", cg_try_change, "the folder above a pattern's match moved away", "sub",
             .change = CG_RENAME, .arg2 = "moved-away", .then = cg_try_leak,
             .at = "moved-away/deeper/key.pem"),
        HIDE("hide-exchange", cg_try_change, "it exchanged for another", "fresh", .change = CG_EXCHANGE,
             .arg2 = "secret.txt", .then = cg_try_leak, .at = "fresh"),
        HIDE("hide-path-fd", by_path_fd, "an O_PATH descriptor of it", NULL),
        HIDE("hide-mmap", by_mmap, "it mapped into memory", NULL),
        HIDE("hide-dots", cg_try_leak, "its name by way of other folders", "d/../././/secret.txt"),
        HIDE("hide-proc-cwd", cg_try_leak, "its name by way of /proc/self/cwd", "/proc/self/cwd/secret.txt"),
        HIDE("hide-write", cg_try_open_write, "writing it", "secret.txt"),
        HIDE("hide-folder-put", cg_try_create, "a new file in a hidden folder", "secrets/new.txt"),
        HIDE("hide-dotenv", cg_try_leak, "secrets in .env", ".env"),
        HIDE("hide-exec", by_exec, "it run as a program", NULL, .bare = CG_BARE_NONE),
        HIDE("cred-ssh", cg_try_leak, "keys in ~/.ssh", "../home/.ssh/id_ed25519"),
        HIDE("cred-aws", cg_try_leak, "~/.aws", "../home/.aws/credentials"),
        HIDE("cred-gnupg", cg_try_leak, "~/.gnupg", "../home/.gnupg/secring.gpg"),
        HIDE("cred-netrc", cg_try_leak, "~/.netrc", "../home/.netrc"),
        HIDE("cred-kube", cg_try_leak, "~/.kube", "../home/.kube/config"),
        HIDE("cred-docker", cg_try_leak, "~/.docker", "../home/.docker/config.json"),
        HIDE("cred-github", cg_try_leak, "~/.config/gh", "../home/.config/gh/hosts.yml"),
        HIDE("cred-npm", cg_try_leak, "~/.npmrc", "../home/.npmrc"),
        HIDE("cred-git", cg_try_leak, "~/.git-credentials", "../home/.git-credentials"),
        HIDE("cred-browser", cg_try_leak, "a browser's cookies", "../home/.mozilla/cookies.sqlite"),
        HIDE("cred-history", cg_try_leak, "the shell's history", "../home/.bash_history"),
#undef HIDE
#define SYSTEM(name, path, what) \
        CG_DENY(name, "mount|landlock", shadow, what, .bare = CG_BARE_MACHINE, .arg = path)
        SYSTEM("cred-shadow", "/etc/shadow", "passwords in /etc/shadow"),
        SYSTEM("cred-gshadow", "/etc/gshadow", "group passwords"),
        SYSTEM("cred-sudoers", "/etc/sudoers", "/etc/sudoers"),
        SYSTEM("cred-host-key", "/etc/ssh/ssh_host_ed25519_key", "the machine's ssh key"),
        SYSTEM("cred-backup", "/var/backups/shadow.bak", "copies of them"),
#undef SYSTEM
        CG_ALLOW("read-beside", cg_try_readable, "a file beside it that is not hidden", .arg = "plain.txt"),
        CG_ALLOW("read-again", cg_try_readable, "allowRead within a hidden folder",
                 .arg = "mostly/shown.txt"),
        CG_ALLOW("read-system", cg_try_readable, "the system's files", .arg = "/etc/passwd"),
};

CG_TABLE(hidden, "hidden files");
