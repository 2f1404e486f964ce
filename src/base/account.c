/* The user's account, as /etc/passwd has it. */
#include "base/account.h"

#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Longest line of /etc/passwd. */
#define PASSWD_LINE_MAX 16384

/*
 * The home of the user @name, or without a name of @uid: "" where there is none. False: the file
 * cannot be read. Not getpwuid(), which loads libraries: a static program cannot.
 */
static bool find_home(const char *name, size_t len, uid_t uid, char ret[PATH_MAX])
{
        struct passwd entry, *pw;
        char line[PASSWD_LINE_MAX];
        FILE *f = fopen("/etc/passwd", "re");

        ret[0] = '\0';
        while (f && fgetpwent_r(f, &entry, line, sizeof(line), &pw) == 0 && pw) {
                if (name ? strlen(pw->pw_name) != len || memcmp(pw->pw_name, name, len) != 0
                         : pw->pw_uid != uid)
                        continue;
                if (pw->pw_dir && pw->pw_dir[0] == '/' && strlen(pw->pw_dir) < PATH_MAX)
                        strcpy(ret, pw->pw_dir);
                break;
        }
        if (f)
                fclose(f);
        return f != NULL;
}

const char *cg_account_home(char ret[PATH_MAX])
{
        static char known[PATH_MAX];
        static bool looked_up;
        static uid_t uid;

        if (!looked_up || uid != geteuid()) {
                uid = geteuid();
                looked_up = find_home(NULL, 0, uid, known);
        }
        /* "/" is the home of accounts that have none */
        return known[0] && known[1] ? strcpy(ret, known) : NULL;
}

bool cg_named_home(const char *name, size_t len, char ret[PATH_MAX])
{
        return find_home(name, len, 0, ret) && ret[0];
}
