/* `cellgate doctor`: runs the checks, then a whole sandbox. Linked into the front program. */
#include "cli/sandbox/doctor.h"

#include <jansson.h>
#include <sys/wait.h>

#include "base/installed.h"
#include "base/json.h"
#include "cli/common/cli.h"
#include "cli/help.h"
#include "config.h"
#include "sandbox/apparmor.h"
#include "sandbox/command/command.h"

struct check_outcome {
        int error; /* 0: it works */
        char note[400];
};

/* In a child: a check changes the process that makes it. */
static struct check_outcome try(const struct cg_doctor_check *check)
{
        struct check_outcome o = { .error = EIO };
        int fds[2], status;
        pid_t pid;

        if (pipe(fds) < 0)
                return o;
        pid = fork();
        if (pid == 0) {
                o = (struct check_outcome){ 0 };
                o.error = check->run(o.note, sizeof(o.note));
                _exit(write(fds[1], &o, sizeof(o)) != (ssize_t)sizeof(o));
        }
        close(fds[1]);
        if (pid < 0 || read(fds[0], &o, sizeof(o)) != (ssize_t)sizeof(o))
                o = (struct check_outcome){ .error = EIO };
        close(fds[0]);
        while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
                ;
        return o;
}

/* A command in a sandbox, in a child since that can be done once. The message goes to @note. */
static int run_tier(const char *tier, char *note, size_t size)
{
        static char *const argv[] = { (char *)"true", NULL }, *const env[] = { (char *)"PATH=/usr/bin:/bin",
                                                                               NULL };
        const struct cg_command_options opts = {
                .cwd = "/", .env = env, .argv = argv, .tier = tier, .control_fd = -1
        };
        struct cg_settings *s = NULL;
        struct cg_command *c = NULL;
        struct cg_err err = { 0 };
        int status = 1;

        if (cg_settings_default(&s, &err) == 0 && cg_command_new(s, &opts, &c, &err) == 0)
                status = cg_command_run(c, &err);
        cg_command_free(c);
        if (err.code < 0)
                snprintf(note, size, "%s", err.msg);
        return status ? EIO : 0;
}

static int run_full(char *note, size_t size)
{
        return run_tier("full", note, size);
}

static int run_landlock(char *note, size_t size)
{
        return run_tier("landlock", note, size);
}

static const struct cg_doctor_check wholes[] = {
        { .name = "sandbox", .what = "a command in it: the full tier", .required = true, .run = run_full },
        { .name = "landlock sandbox", .what = "a command in it: the landlock tier", .run = run_landlock },
};

/* The mechanism by which each limit would be enforced here. */
static json_t *limits_json(void)
{
        static const struct cg_sandbox_limits all = { .memory_bytes = 1 << 30,
                                                      .cores_milli = 1000,
                                                      .processes = 100,
                                                      .open_files = 100,
                                                      .file_bytes = 1 << 30,
                                                      .cpu_seconds = 9,
                                                      .output_bytes = 1 << 30,
                                                      .wall_seconds = 9 };
        enum cg_limit_by by[CG_LIMITS] = { CG_BY_NOTHING };
        struct cg_sandbox *sb = NULL;
        json_t *o = json_object();

        if (cg_sandbox_new_command(0, &sb, NULL) < 0)
                return o;
        cg_sandbox_set_limits(sb, &all);
        cg_sandbox_limits_by(sb, by);
        cg_sandbox_free(sb);
        for (enum cg_limit i = 0; i < CG_LIMITS; i++)
                json_object_set_new(o, cg_limit_setting(i), json_string(cg_limit_by_name(by[i])));
        return o;
}

/* Results of the checks that others depend on. */
struct summary {
        bool ok, users, full, landlock;
};

/* The strictest tier that works; NULL: none. */
static const char *tier_of(const struct summary *sum)
{
        if (sum->full)
                return "full";
        return sum->landlock ? "landlock" : NULL;
}

static int finish_json(json_t *list, const struct summary *sum)
{
        const char *tier = tier_of(sum);
        int abi = cg_landlock_abi();
        cg_auto_json json_t *o = json_pack("{s:b, s:s?, s:{s:b, s:b}, s:i, s:O, s:o}", "ok", sum->ok, "tier",
                                           tier, "tiers", "full", sum->full, "landlock", sum->landlock,
                                           "landlock_abi", CG_MAX(abi, 0), "checks", list, "limits",
                                           limits_json());
        cg_auto_free char *text = NULL;
        size_t len;

        if (o)
                text = cg_json_text(o, &len);
        if (!text || puts(text) < 0)
                return CG_EXIT_USAGE;
        return !sum->ok;
}

static int finish_text(const struct summary *sum)
{
        cg_auto_json json_t *limits = limits_json();
        const char *name, *between = "";
        json_t *by;

        printf("\nLimits are enforced by");
        json_object_foreach(limits, name, by) {
                printf("%s %s (%s)", between, json_string_value(by), name);
                between = ",";
        }
        printf(".\n\n");
        if (sum->ok)
                puts("Sandboxes work here.");
        else if (!sum->landlock)
                puts("Sandboxes do not work here.");
        else
                puts("Sandboxes of the full tier do not work here. The weaker landlock tier does, if it is requested:\n"
                     "--tier landlock, or \"cellgate\": {\"tier\": \"landlock\"} in the settings (docs/settings.md lists what\n"
                     "it does not protect).");
        return fflush(stdout) ? CG_EXIT_USAGE : !sum->ok;
}

static const char *advice_of(const struct cg_doctor_check *check, int error, const struct summary *sum)
{
        if (!error)
                return NULL;
        if (check->in_users && !sum->users)
                return "see user namespaces";
        if (check->advise)
                return check->advise();
        return check->other && error == check->error ? check->other : check->advice;
}

static void run_check(const struct cg_doctor_check *check, size_t i, json_t *list, struct summary *sum)
{
        const char *advice, *answer = "yes";
        struct check_outcome o;
        json_t *j;

        fflush(stdout);
        o = try(check);
        sum->ok &= !o.error || !check->required;
        if (i == 0)
                sum->users = !o.error;
        if (check->run == run_full)
                sum->full = !o.error;
        if (check->run == run_landlock)
                sum->landlock = !o.error;
        advice = advice_of(check, o.error, sum);
        if (list) {
                j = json_pack("{s:s, s:s, s:b, s:b}", "name", check->name, "for", check->what, "required",
                              check->required, "ok", !o.error);
                if (o.note[0])
                        json_object_set_new(j, "detail", json_string(o.note));
                if (o.error)
                        json_object_set_new(j, "error", json_string(strerror(o.error)));
                if (advice)
                        json_object_set_new(j, "advice", json_string(advice));
                json_array_append_new(list, j);
                return;
        }
        if (o.error)
                answer = check->required ? "NO" : "no";
        printf("%-4s %-18s %s", answer, check->name, check->what);
        if (o.note[0])
                printf(" (%s)", o.note);
        if (o.error && o.error != EIO)
                printf(": %s", strerror(o.error));
        printf("\n");
        if (advice)
                printf("     -> %s\n", advice);
}

/*
 * The one thing here that a program can mend: the rest is other people's kernels and containers.
 * Returns on failure only.
 */
static int fix(void)
{
        const char *program = CG_INSTALLED(CG_LIBEXECDIR "/apparmor");

        if (!cg_apparmor_restricts()) {
                puts("AppArmor does not restrict user namespaces here: there is nothing for --fix to do.");
                return fflush(stdout) ? CG_EXIT_USAGE : 0;
        }
        execl("/bin/sh", "sh", program, (char *)NULL);
        fprintf(stderr, "cellgate doctor: %s cannot be run: %s (is cellgate installed completely?)\n",
                program, strerror(errno));
        return 1;
}

int cg_cli_doctor(int argc, char **argv)
{
        bool json = argc == 2 && strcmp(argv[1], "--json") == 0;
        struct summary sum = { .ok = true };
        cg_auto_json json_t *list = json ? json_array() : NULL;

        if (argc == 2 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0))
                return fputs(CG_HELP_DOCTOR, stdout) < 0;
        if (argc == 2 && strcmp(argv[1], "--fix") == 0)
                return fix();
        if (argc > 1 && !json) {
                fprintf(stderr, "cellgate doctor: there is no option \"%s\": --help lists them\n", argv[1]);
                return CG_EXIT_USAGE;
        }
        for (size_t i = 0; i < cg_doctor_n_checks; i++)
                run_check(&cg_doctor_checks[i], i, list, &sum);
        for (size_t i = 0; i < CG_ARRAY_LEN(wholes); i++)
                run_check(&wholes[i], cg_doctor_n_checks + i, list, &sum);
        return json ? finish_json(list, &sum) : finish_text(&sum);
}
