/* The user's account, as /etc/passwd has it. */
#include "base/account.h"

#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Longest line of /etc/passwd. */
#define PASSWD_LINE_MAX 16384

const char *cg_account_home(char ret[PATH_MAX])
{
        static char known[PATH_MAX];
        static bool looked_up;
        static uid_t uid;
        struct passwd entry, *pw = NULL;
        char line[PASSWD_LINE_MAX];
        FILE *f;

        if (!looked_up || uid != geteuid()) {
                uid = geteuid();
                known[0] = '\0';
                /* Not getpwuid(): it loads libraries, which a static program cannot. */
                f = fopen("/etc/passwd", "re");
                looked_up = f != NULL;
                while (f && fgetpwent_r(f, &entry, line, sizeof(line), &pw) == 0 && pw && pw->pw_uid != uid)
                        ;
                if (f && pw && pw->pw_dir && pw->pw_dir[0] == '/' && pw->pw_dir[1] &&
                    strlen(pw->pw_dir) < sizeof(known))
                        memcpy(known, pw->pw_dir, strlen(pw->pw_dir) + 1);
                if (f)
                        fclose(f);
        }
        if (!known[0])
                return NULL;
        return memcpy(ret, known, strlen(known) + 1);
}

bool cg_named_home(const char *name, size_t len, char ret[PATH_MAX])
{
        struct passwd entry, *pw = NULL;
        char line[PASSWD_LINE_MAX];
        FILE *f = fopen("/etc/passwd", "re");
        bool found = false;

        while (f && !found && fgetpwent_r(f, &entry, line, sizeof(line), &pw) == 0 && pw)
                found = strlen(pw->pw_name) == len && memcmp(pw->pw_name, name, len) == 0;
        if (f)
                fclose(f);
        return found && pw->pw_dir && pw->pw_dir[0] == '/' &&
               snprintf(ret, PATH_MAX, "%s", pw->pw_dir) < PATH_MAX;
}
