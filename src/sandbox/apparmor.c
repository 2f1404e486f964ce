/* AppArmor's restriction of user namespaces. See apparmor.h. Used by whatever makes sandboxes. */
#include "sandbox/apparmor.h"

#include "base/fd.h"
#include "base/proc.h"

bool cg_apparmor_restricts(void)
{
        int saved = errno; /* callers report an error of their own */
        char buf[4];

        cg_proc_read_text("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", buf, sizeof(buf));
        errno = saved;
        return buf[0] == '1';
}

int cg_apparmor_leave(const char *attr, struct cg_err *err)
{
        static const char own[] = "cellgate", command[] = "changeprofile unconfined";
        const char *path = attr ?: "/proc/self/attr/apparmor/current";
        char label[sizeof(own)];
        cg_auto_fd int fd = -1;

        /*
         * Without AppArmor there is no such file, or reading it fails. All of cellgate's profiles
         * have names that begin like this.
         */
        if (!cg_proc_read_text(path, label, sizeof(label)) || strcmp(label, own) != 0)
                return 0;
        fd = open(path, O_WRONLY | O_CLOEXEC);
        if (fd < 0 || write(fd, command, strlen(command)) < 0)
                return cg_fail_errno(err, "sandbox: leaving cellgate's AppArmor profile");
        return 0;
}
