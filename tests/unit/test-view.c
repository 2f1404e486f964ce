/* Patterns, paths, and rules to mounts. */
#include "base/path.h"
#include "sandbox/settings/environ.h"
#include "sandbox/settings/glob.h"
#include "sandbox/mountpoints.h"
#include "sandbox/names/pattern.h"
#include "sandbox/plan.h"
#include "sandbox/settings/view.h"
#define CG_OWN_MAIN
#include "cases.h"

/*
 * ---- patterns: a matcher that searches stars in another way than the walk, to compare both.
 * Characters and sets are compared by the walk's own function, which the first test checks.
 */

/*
 * The usual matcher with two places to come back to: the last star within a name, and the last pair
 * of stars. Going back to the last of each is enough, so the time is at most the product of the
 * lengths.
 */
static bool glob_match(const char *pattern, const char *path)
{
        const char *star = NULL, *star_at = NULL, *all = NULL, *all_at = NULL, *p = pattern, *s = path, *next;

        for (;;) {
                if (p[0] == '*' && p[1] == '*') {
                        while (*p == '*')
                                p++;
                        /* Two stars and "/" are any number of folders, none included. */
                        all = *p == '/' && (p - pattern < 3 || p[-3] == '/') ? p + 1 : p;
                        all_at = s;
                        star = NULL;
                        p = all;
                        continue;
                }
                if (*p == '*') {
                        star = ++p;
                        star_at = s;
                        continue;
                }
                if (!*s && !*p)
                        return true;
                if (*s && *p && (next = cg_pattern_match_one(p, *s))) {
                        p = next;
                        s++;
                        continue;
                }
                if (star && *star_at && *star_at != '/') {
                        s = ++star_at;
                        p = star;
                        continue;
                }
                if (!all || !*all_at)
                        return false;
                /* After "**" and "/" a match starts at the start of a name only. */
                for (all_at++; all[-1] == '/' && *all_at && all_at[-1] != '/'; all_at++)
                        ;
                s = all_at;
                p = all;
                star = NULL;
        }
}

TEST(matches)
{
        EACH_CASE(c, "matches")
        assert_true(glob_match(c.in, c.out));
        EACH_CASE(c, "no matches")
        assert_false(glob_match(c.in, c.out));
}

/* Time is the product of the lengths, not a power of them. */
TEST(a_hostile_pattern_ends)
{
        char pattern[2002], path[2002];

        for (size_t i = 0; i < 2000; i += 2)
                memcpy(pattern + i, "*a", 3);
        pattern[2000] = 'b';
        pattern[2001] = '\0';
        memset(path, 'a', 2001);
        path[2001] = '\0';
        assert_false(glob_match(pattern, path));
}

/* ---- a folder of our own */

static int make_folder(void **state)
{
        return enter_folder(state) < 0 ? -1 : chdir(test_dir);
}

static int remove_folder(void **state)
{
        return chdir("/") < 0 ? -1 : leave_folder(state);
}

TEST(patterns_of_new_paths)
{
        static char huge[PATH_MAX + 1];
        struct cg_pattern p;

        EACH_CASE(c, "covered")
        {
                assert_true(cg_pattern_init(&p, c.in));
                assert_int_equal(cg_pattern_covers(&p, c.out), !strcmp(c.third, "yes"));
        }
        EACH_CASE(c, "leading")
        {
                assert_true(cg_pattern_init(&p, c.in));
                assert_int_equal(cg_pattern_leads(&p, c.out), !strcmp(c.third, "yes"));
        }
        memset(huge, 'a', PATH_MAX);
        assert_false(cg_pattern_init(&p, huge));
}

static int count(void *data, const char *path, bool unlisted, struct cg_err *err)
{
        int *n = data;

        assert_false(unlisted);
        (*n)++;
        return 0;
}

static int found(const char *pattern)
{
        char full[512];
        int n = 0;

        snprintf(full, sizeof(full), "%s/%s", test_dir, pattern);
        OK(cg_glob_walk(full, count, &n, &err));
        return n;
}

TEST(walk)
{
        mkdir("g", 0755);
        mkdir("g/a", 0755);
        mkdir("g/a/b", 0755);
        write_file("g/.env", "");
        write_file("g/a/.env", "");
        write_file("g/a/b/.env", "");
        write_file("g/a/x.env", "");
        assert_int_equal(symlink("..", "g/a/loop"), 0);
        assert_int_equal(symlink("b", "g/a/again"), 0);
        assert_int_equal(found("g/**/.env"), 3);
        assert_int_equal(found("g/*"), 2);
        assert_int_equal(found("g/*/.env"), 1);
        assert_int_equal(found("g/a/*.env"), 2);
        assert_int_equal(found("none/*"), 0);
        assert_int_equal(found("g/a/[ab]"), 1);
}

/*
 * A folder that was walked under the name of a symlink has its own name as well, and a pattern may
 * mean that one.
 */
TEST(walk_by_each_name)
{
        /* whatever the order of the folder */
        static const char *const links[] = { "s/a", "s/b", "s/m", "s/y", "s/z" };

        mkdir("s", 0755);
        mkdir("s/keys", 0755);
        mkdir("s/keys/deep", 0755);
        write_file("s/keys/k", "");
        write_file("s/keys/deep/k", "");
        for (size_t i = 0; i < CG_ARRAY_LEN(links); i++)
                assert_int_equal(symlink("keys", links[i]), 0);
        assert_int_equal(found("s/**/keys/k"), 1);
        assert_int_equal(found("s/**/keys/**/k"), 2);
        assert_int_equal(found("s/keys/k"), 1);
        assert_int_equal(found("s/z/k"), 1);
        assert_int_equal(found("s/**/[m]/k"), 1);
        assert_int_equal(found("s/**/m/*/k"), 1);
}

static const char *const tree[] = {
        "t/a", "t/b", "t/a/a", "t/a/b", "t/b/a", "t/b/ab", "t/a/a/b", "t/b/ab/a"
};

/* All of @paths, which the walk must find too. */
static int matching(const char *pattern)
{
        char full[2][512];
        int n = 0;

        snprintf(full[0], sizeof(full[0]), "%s/%s", test_dir, pattern);
        for (size_t i = 0; i < CG_ARRAY_LEN(tree); i++) {
                snprintf(full[1], sizeof(full[1]), "%s/%s", test_dir, tree[i]);
                n += glob_match(full[0], full[1]);
        }
        return n;
}

/* The walk reads patterns in its own way. Slashes in pairs or at the end never reach it. */
TEST(walk_finds_what_matches)
{
        static const char letters[] = "aab/**/?[]-";
        char pattern[16] = "t/";
        uint32_t r = 1;

        mkdir("t", 0755);
        for (size_t i = 0; i < CG_ARRAY_LEN(tree); i++)
                mkdir(tree[i], 0755);
        for (int i = 0; i < 20000; i++) {
                size_t n = 2 + (size_t)i % 10;

                for (size_t k = 2; k <= n; k++) {
                        r = r * 1664525 + 1013904223;
                        pattern[k] = letters[(r >> 16) % (sizeof(letters) - 1)];
                }
                pattern[n + 1] = '\0';
                if (strpbrk(pattern, "*?[") && !strstr(pattern, "//") && pattern[n] != '/' &&
                    found(pattern) != matching(pattern))
                        fail_msg("%s: %d found, %d match", pattern, found(pattern), matching(pattern));
        }
}

TEST(spelled)
{
        const struct cg_path_base base = { .cwd = "/cwd", .home = "/home/u" };
        char path[PATH_MAX];

        EACH_CASE(c, "absolute paths")
        {
                OK(cg_path_absolute(&base, c.in, path, &err));
                assert_string_equal(path, c.out);
        }
}

static struct cg_place find(const char *rel)
{
        char path[PATH_MAX];
        struct cg_place place;

        snprintf(path, sizeof(path), "%s/%s", test_dir, rel);
        OK(cg_place_find(path, &place, &err));
        return place;
}

TEST(places)
{
        struct cg_place p;
        char path[PATH_MAX];

        mkdir("p", 0755);
        write_file("p/f", "");
        assert_int_equal(symlink("p", "l"), 0);
        assert_int_equal(symlink("p/none/x", "dangling"), 0);
        assert_int_equal(symlink("circle", "circle"), 0);
        p = find("l/f");
        assert_int_equal(p.missing, 0);
        assert_false(p.folder || p.link);
        assert_int_equal(p.n_links, 1);
        snprintf(path, sizeof(path), "%s/p/f", test_dir);
        assert_string_equal(p.path, path);
        cg_place_fini(&p);
        p = find("l");
        assert_true(p.link && p.folder);
        cg_place_fini(&p);
        p = find("l/a/b");
        assert_string_equal(p.path + p.missing, "a/b");
        cg_place_fini(&p);
        p = find("dangling");
        assert_string_equal(p.path + p.missing, "none/x");
        assert_true(p.link);
        cg_place_fini(&p);
        snprintf(path, sizeof(path), "%s/circle", test_dir);
        FAILS(CG_E_LIMIT, "", cg_place_find(path, &p, &err));
}

/* A folder above the base is exchanged by a link: what was to be written would be elsewhere. */
TEST(links_to_the_base)
{
        static const char text[] =
                "{\"network\":{\"allowedDomains\":[],\"deniedDomains\":[]},\"filesystem\":{\"denyRead\":[],"
                "\"allowWrite\":[\".\"],\"denyWrite\":[]}}";
        struct cg_settings *s = NULL;
        struct cg_rules rules = { 0 };
        char cwd[PATH_MAX];
        struct cg_path_base base = { .cwd = cwd };

        mkdir("b", 0755);
        mkdir("b/w", 0755);
        assert_int_equal(symlink("b", "bl"), 0);
        OK(cg_settings_parse(text, sizeof(text) - 1, "s", 0, &s, &err));
        for (int real = 0; real < 2; real++) {
                base.real = real;
                snprintf(cwd, sizeof(cwd), "%s/b/w", test_dir);
                OK(cg_rules_make_roots(s, &base, &rules, &err));
                assert_int_equal(rules.n, 1);
                cg_rules_fini(&rules);
                snprintf(cwd, sizeof(cwd), "%s/bl/w", test_dir);
                if (real) {
                        FAILS(CG_E_STATE, "has become a link", cg_rules_make_roots(s, &base, &rules, &err));
                } else {
                        OK(cg_rules_make_roots(s, &base, &rules, &err));
                        cg_rules_fini(&rules);
                }
        }
        cg_settings_free(s);
}

/* ---- rules to states and mounts: nothing of these paths has to exist */

static void add_rule(struct cg_rules *rules, enum cg_rule_kind kind, const char *path, bool folder,
                     size_t missing)
{
        struct cg_place place = { .folder = folder, .missing = missing };

        snprintf(place.path, sizeof(place.path), "%s", path);
        OK(cg_rules_add(rules, kind, &place, "test", &err));
}

TEST(states)
{
        struct cg_rules r = { 0 };

        add_rule(&r, CG_RULE_ALLOW_WRITE, "/w", true, 0);
        add_rule(&r, CG_RULE_DENY_READ, "/w/s", true, 0);
        add_rule(&r, CG_RULE_ALLOW_READ, "/w/s/ok", true, 0);
        add_rule(&r, CG_RULE_DENY_READ, "/w/s/ok/no", false, 0);
        add_rule(&r, CG_RULE_DENY_WRITE, "/w/d", true, 0);
        add_rule(&r, CG_RULE_ALLOW_WRITE, "/w/d/sub", true, 0);
        add_rule(&r, CG_RULE_DENY_READ, "/both", true, 0);
        add_rule(&r, CG_RULE_ALLOW_READ, "/both", true, 0);
        assert_int_equal(cg_view_state(&r, "/"), CG_VIEW_READ);
        assert_int_equal(cg_view_state(&r, "/x"), CG_VIEW_READ);
        assert_int_equal(cg_view_state(&r, "/wx"), CG_VIEW_READ);
        assert_int_equal(cg_view_state(&r, "/w/x"), CG_VIEW_WRITE);
        assert_int_equal(cg_view_state(&r, "/w/s/x"), CG_VIEW_HIDDEN);
        assert_int_equal(cg_view_state(&r, "/w/s/ok/x"), CG_VIEW_WRITE);
        assert_int_equal(cg_view_state(&r, "/w/s/ok/no"), CG_VIEW_HIDDEN);
        assert_int_equal(cg_view_state(&r, "/w/d/x"), CG_VIEW_READ);
        assert_int_equal(cg_view_state(&r, "/w/d/sub/x"), CG_VIEW_READ);
        assert_int_equal(cg_view_state(&r, "/both/x"), CG_VIEW_READ);
        cg_rules_fini(&r);
}

static const struct cg_plan_mount *mount_at(const struct cg_sandbox *sb, const char *path)
{
        for (size_t i = 0; i < sb->n_mounts; i++) {
                if (!strcmp(sb->mounts[i].path, path))
                        return &sb->mounts[i];
        }
        return NULL;
}

static void assert_kind(const struct cg_sandbox *sb, const char *path, enum cg_plan_kind kind)
{
        const struct cg_plan_mount *m = mount_at(sb, path);

        if (!m)
                fail_msg("nothing at %s", path);
        else if (m->kind != kind)
                fail_msg("%d at %s", m->kind, path);
}

TEST(mounts)
{
        struct cg_rules r = { 0 };
        struct cg_sandbox *sb = NULL;

        add_rule(&r, CG_RULE_ALLOW_WRITE, "/w", true, 0);
        add_rule(&r, CG_RULE_DENY_WRITE, "/w/a/b/keep", false, 0);
        add_rule(&r, CG_RULE_DENY_WRITE, "/w/c/x/y", false, 5); /* "x" is not there */
        add_rule(&r, CG_RULE_DENY_WRITE, "/ro/x", false, 0);    /* is read-only anyway */
        add_rule(&r, CG_RULE_DENY_READ, "/h", true, 0);
        add_rule(&r, CG_RULE_ALLOW_READ, "/h/shown", true, 0);
        add_rule(&r, CG_RULE_DENY_READ, "/h/deeper", true, 0); /* is hidden already */
        add_rule(&r, CG_RULE_DENY_READ, "/s", true, 0);
        add_rule(&r, CG_RULE_KEEP, "/w/l", false, 0);
        add_rule(&r, CG_RULE_KEEP, "/ro/l", false, 0);
        OK(cg_sandbox_new_command(0, &sb, &err));
        OK(cg_view_add(sb, &r, &err));
        assert_kind(sb, "/w", CG_PLAN_WRITE);
        assert_kind(sb, "/w/a", CG_PLAN_PIN);
        assert_kind(sb, "/w/a/b", CG_PLAN_PIN);
        assert_kind(sb, "/w/a/b/keep", CG_PLAN_READ);
        assert_kind(sb, "/w/c", CG_PLAN_PIN);
        assert_kind(sb, "/w/c/x", CG_PLAN_READ);
        assert_kind(sb, "/w/l", CG_PLAN_PIN);
        assert_kind(sb, "/h", CG_PLAN_EMPTY);
        assert_kind(sb, "/h/shown", CG_PLAN_BIND_RO);
        assert_kind(sb, "/s", CG_PLAN_HIDE);
        assert_null(mount_at(sb, "/ro/x"));
        assert_null(mount_at(sb, "/ro/l"));
        assert_null(mount_at(sb, "/h/deeper"));
        assert_null(mount_at(sb, "/w/c/x/y"));
        assert_int_equal(sb->n_placeholders, 1);
        assert_string_equal(sb->placeholders[0].path, "/w/c/x");
        assert_true(sb->placeholders[0].folder); /* something else would have to lie in it */
        for (size_t i = 0; i + 1 < sb->n_mounts; i++) {
                for (size_t k = i + 1; k < sb->n_mounts; k++)
                        assert_false(cg_path_within(sb->mounts[i].path, sb->mounts[k].path));
        }
        cg_sandbox_free(sb);
        cg_rules_fini(&r);
}

TEST(everything_writable)
{
        struct cg_rules r = { 0 };
        struct cg_sandbox *sb = NULL;

        add_rule(&r, CG_RULE_ALLOW_WRITE, "/", true, 0);
        add_rule(&r, CG_RULE_DENY_WRITE, "/a/b", true, 0);
        OK(cg_sandbox_new_command(0, &sb, &err));
        OK(cg_view_add(sb, &r, &err));
        assert_true(sb->set.root_writable);
        assert_null(mount_at(sb, "/"));
        assert_kind(sb, "/a", CG_PLAN_PIN);
        assert_kind(sb, "/a/b", CG_PLAN_READ);
        cg_sandbox_free(sb);
        cg_rules_fini(&r);
}

/* ---- environment */

TEST(environment)
{
        static const char text[] =
                "{\"network\":{\"allowedDomains\":[],\"deniedDomains\":[]},\"filesystem\":{\"denyRead\":[],"
                "\"allowWrite\":[],\"denyWrite\":[]},\"credentials\":{\"envVars\":[{\"name\":\"S\",\"mode\":"
                "\"deny\"}]},\"git\":{\"safeDirectories\":[\"/g\"]},\"cellgate\":{\"env\":[\"A*\",\"S\"]}}";
        char *from[] = {
                (char *)"AB=1", (char *)"B=2", (char *)"S=secret", (char *)"A=", (char *)"SX=3", NULL
        };
        const struct cg_environ_options options = { .http_port = 3128, .socks_port = 1080 };
        struct cg_settings *s = NULL;
        struct cg_environ env;

        OK(cg_settings_parse(text, sizeof(text) - 1, "s", 0, &s, &err));
        OK(cg_environ_make(s, from, &options, &env, &err));
        assert_string_equal(cg_environ_get(&env, "AB"), "1");
        assert_string_equal(cg_environ_get(&env, "A"), "");
        assert_null(cg_environ_get(&env, "B"));
        assert_null(cg_environ_get(&env, "S"));
        assert_null(cg_environ_get(&env, "SX"));
        assert_string_equal(cg_environ_get(&env, "HTTP_PROXY"), "http://localhost:3128");
        assert_string_equal(cg_environ_get(&env, "GIT_CONFIG_VALUE_0"), "/g");
        OK(cg_environ_set(&env, "AB", NULL, &err));
        assert_null(cg_environ_get(&env, "AB"));
        assert_null(env.v[env.n]);
        cg_environ_fini(&env);
        cg_settings_free(s);
}

/*
 * Another sandbox may put a symlink in a folder's place at any moment: what it leads to is neither
 * given a file nor loses one.
 */
TEST(placeholders_and_symlinks)
{
        struct cg_sandbox *sb = NULL;
        char path[200];
        int *fds = NULL;

        snprintf(path, sizeof(path), "%s/ph/sub/x", test_dir);
        assert_int_equal(mkdir("ph", 0755), 0);
        assert_int_equal(mkdir("ph/sub", 0755), 0);
        OK(cg_sandbox_new(&sb, &err));
        OK(cg_plan_add_placeholder(sb, path, true, true, &err));
        OK(cg_placeholders_make(sb, &fds, &err));
        assert_int_equal(access("ph/sub/x", F_OK), 0);
        assert_int_equal(rename("ph/sub", "ph/moved"), 0);
        assert_int_equal(symlink("moved", "ph/sub"), 0);
        cg_placeholders_remove(sb, fds);
        assert_int_equal(access("ph/moved/x", F_OK), 0);
        cg_placeholders_remove(sb, NULL);
        assert_int_equal(access("ph/moved/x", F_OK), 0);
        assert_int_equal(rmdir("ph/moved/x"), 0);
        FAILS(ANY_ERROR, "", cg_placeholders_make(sb, &fds, &err));
        assert_int_equal(access("ph/moved/x", F_OK), -1);
        /* With the folder itself in its place both work. */
        assert_int_equal(unlink("ph/sub"), 0);
        assert_int_equal(rename("ph/moved", "ph/sub"), 0);
        OK(cg_placeholders_make(sb, &fds, &err));
        cg_placeholders_remove(sb, fds);
        assert_int_equal(access("ph/sub/x", F_OK), -1);
        cg_sandbox_free(sb);
}

int main(int argc, char **argv)
{
        char file[PATH_MAX];

        cg_cases_path = argc > 1 ? realpath(argv[1], file) : NULL; /* tests change the working directory */
        return cg_run_tests(make_folder, remove_folder);
}
