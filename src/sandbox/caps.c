/* Dropping capabilities for good: in main processes of sandboxes, init and cellgate-egress. */
#include "sandbox/steps.h"

#include <linux/capability.h>
#include <linux/securebits.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include "base/util.h"

int cg_caps_drop_bounding(bool setfcap, struct cg_err *err)
{
        for (unsigned long cap = 0; prctl(PR_CAPBSET_READ, cap, 0, 0, 0) >= 0; cap++) {
                if (setfcap && cap == CAP_SETFCAP)
                        continue;
                if (prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) < 0)
                        return cg_fail_errno(err, "sandbox: capability bounding set");
        }
        return 0;
}

int cg_caps_set(bool setfcap, uint32_t more, struct cg_err *err)
{
        struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
        struct __user_cap_data_struct left[_LINUX_CAPABILITY_U32S_3] = { { 0 } };

        if (setfcap)
                left[0].effective = left[0].permitted = left[0].inheritable = 1U << CAP_SETFCAP;
        left[0].effective |= more;
        left[0].permitted |= more;
        if (syscall(SYS_capset, &header, left) < 0)
                return cg_fail_errno(err, "sandbox: capabilities");
        return 0;
}

int cg_caps_drop(bool setfcap, uint32_t more, struct cg_err *err)
{
        /* Becoming uid 0 gives no capabilities, other users keep none, and the bits are locked. */
        static const unsigned long bits = SECBIT_NOROOT | SECBIT_NOROOT_LOCKED | SECBIT_NO_SETUID_FIXUP |
                                          SECBIT_NO_SETUID_FIXUP_LOCKED | SECBIT_KEEP_CAPS_LOCKED |
                                          SECBIT_NO_CAP_AMBIENT_RAISE | SECBIT_NO_CAP_AMBIENT_RAISE_LOCKED;
        struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
        struct __user_cap_data_struct caps[_LINUX_CAPABILITY_U32S_3] = { { 0 } };

        /* Bits first: changing them needs CAP_SETPCAP, which the last line drops. */
        if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) < 0)
                return cg_fail_errno(err, "sandbox: ambient capabilities");
        /* Keeps CAP_SETFCAP across an exec, by an ambient capability. */
        if (setfcap) {
                if (syscall(SYS_capget, &header, caps) < 0)
                        return cg_fail_errno(err, "sandbox: capabilities");
                for (size_t i = 0; i < CG_ARRAY_LEN(caps); i++)
                        caps[i].inheritable = i == 0 ? 1U << CAP_SETFCAP : 0;
                if (syscall(SYS_capset, &header, caps) < 0 ||
                    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, CAP_SETFCAP, 0, 0) < 0)
                        return cg_fail_errno(err, "sandbox: capability for nested user namespaces");
        }
        if (prctl(PR_SET_SECUREBITS, bits, 0, 0, 0) < 0)
                return cg_fail_errno(err, "sandbox: securebits");
        return cg_caps_set(setfcap, more, err);
}

/*
 * For the landlock tier. Outside of a user namespace only root has the capabilities to clear the
 * bounding set and to lock securebits. Other users cannot gain capabilities because of
 * no_new_privs.
 */
int cg_caps_drop_outside(struct cg_err *err)
{
        struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
        struct __user_cap_data_struct caps[_LINUX_CAPABILITY_U32S_3] = { { 0 } },
                                      none[_LINUX_CAPABILITY_U32S_3] = { { 0 } };

        if (syscall(SYS_capget, &header, caps) < 0)
                return cg_fail_errno(err, "sandbox: capabilities");
        if (caps[0].effective & (1U << CAP_SETPCAP))
                return cg_caps_drop_bounding(false, err) < 0 ? -1 : cg_caps_drop(false, 0, err);
        if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) < 0)
                return cg_fail_errno(err, "sandbox: ambient capabilities");
        if (syscall(SYS_capset, &header, none) < 0)
                return cg_fail_errno(err, "sandbox: capabilities");
        return 0;
}
