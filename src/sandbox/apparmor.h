/*
 * AppArmor's restriction of user namespaces (Ubuntu 23.10 and newer): only programs with a profile
 * that has "userns" may make one with capabilities in it. The profiles:
 * share/system/apparmor-profile.in; docs/apparmor.md.
 */
#pragma once

#include <stdbool.h>

#include "base/err.h"
#include "config.h"

/* The one command, for root, that installs the profiles. */
#if CG_WHEEL
#define CG_APPARMOR_FIX "`sudo cellgate doctor --fix` of cellgate's Debian package"
#else
#define CG_APPARMOR_FIX "sudo " CG_BINDIR "/cellgate doctor --fix"
#endif
/* After an error, in parentheses. */
#define CG_APPARMOR_HINT \
        " (AppArmor on this machine forbids user namespaces to programs without a profile: run once " CG_APPARMOR_FIX \
        ")"

/* Does this machine restrict user namespaces by AppArmor? Leaves errno as it is. */
bool cg_apparmor_restricts(void);

/*
 * Makes the caller, and what it starts, unconfined again where it has one of cellgate's profiles:
 * code without a sandbox has the rights of its user, and those do not include user namespaces where
 * they are restricted. For a process with one thread. @attr: the file that AppArmor reads and
 * writes profiles by; NULL: the caller's own.
 * Return: 0; negative: the profile is still there.
 */
int cg_apparmor_leave(const char *attr, struct cg_err *err);
