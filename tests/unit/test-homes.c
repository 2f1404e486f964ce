/* Homes that are scanned once and used while nothing changes there: settings/homes.h, stamps.h. */
#include <time.h>

#include "sandbox/names/names.h"
#include "sandbox/names/present.h"
#include "sandbox/settings/homes.h"
#include "sandbox/settings/name_links.h"
#include "sandbox/names/stamps.h"
#include "unit.h"

/* Seconds that the clock is ahead of the file system's. */
static time_t ahead;

int __real_clock_gettime(clockid_t id, struct timespec *ret);
int __wrap_clock_gettime(clockid_t id, struct timespec *ret);

int __wrap_clock_gettime(clockid_t id, struct timespec *ret)
{
        int r = __real_clock_gettime(id, ret);

        ret->tv_sec += ahead;
        return r;
}

/* The account's own home changes when others write there. */
const char *__wrap_cg_account_home(char ret[PATH_MAX]);

const char *__wrap_cg_account_home(char ret[PATH_MAX])
{
        (void)ret;
        return NULL;
}

static char home[64];

static const char *in(const char *name)
{
        static char path[2][200];
        static int next;

        next = !next;
        snprintf(path[next], sizeof(path[next]), "%s/%s", home, name);
        return path[next];
}

static void file(const char *name)
{
        FILE *f = fopen(in(name), "w");

        assert_non_null(f);
        fclose(f);
}

static void link_to(const char *target, const char *name)
{
        assert_int_equal(symlink(target, in(name)), 0);
}

static int set_up(void **state)
{
        static const char *const folders[] = { ".config", ".config/fish", ".vim",
                                               ".vim/a",  ".vim/a/b",     ".vim/a/b/c" };

        ahead = 60;
        snprintf(home, sizeof(home), "/tmp/cellgate-test-XXXXXX");
        assert_non_null(mkdtemp(home));
        for (size_t i = 0; i < CG_ARRAY_LEN(folders); i++)
                assert_int_equal(mkdir(in(folders[i]), 0700), 0);
        file(".bashrc");
        return 0;
}

static int tear_down(void **state)
{
        assert_int_equal(cg_remove_tree(home, NULL), 0);
        return 0;
}

static json_t *scan(struct cg_stamps *stamps)
{
        json_t *homes = cg_homes_scan(home, stamps);

        assert_non_null(homes);
        return homes;
}

TEST_WITH(test_what_is_used_is_what_was_found, set_up, tear_down)
{
        cg_auto_present struct cg_present found = { 0 }, used = { 0 };
        cg_auto_stamps struct cg_stamps stamps = { 0 };
        cg_auto_json json_t *homes = NULL;
        size_t n;

        link_to("/elsewhere/x", ".vim/out");
        link_to("../../../x", ".vim/a/b/out");
        link_to("a", ".vim/stays");
        link_to("/elsewhere/x", ".vim/a/b/c/too-deep");
        link_to("/elsewhere/y", ".zshrc");
        homes = scan(&stamps);
        assert_true(cg_homes_get(homes, home, &used));
        OK(cg_present_scan(&found, home, CG_NAME_WRITE | CG_NAME_HIDE, NULL, &err));
        OK(cg_name_links_find(&found, NULL, &err));
        cg_names(&n);
        assert_string_equal(used.folder, found.folder);
        assert_memory_equal(used.rows, found.rows, n);
        assert_int_equal(used.n_links, 2);
        assert_int_equal(found.n_links, 2);
        for (size_t i = 0; i < 2; i++)
                assert_string_equal(used.links[i], found.links[i]);
        cg_present_fini(&used);
        assert_false(cg_homes_get(homes, "/nobody's", &used));
        assert_false(cg_homes_get(NULL, home, &used));
}

static void make_name(void)
{
        file(".profile");
}

static void make_link(void)
{
        link_to("/elsewhere/x", ".vim/a/b/new");
}

static void remove_name(void)
{
        assert_int_equal(unlink(in(".bashrc")), 0);
}

static void rename_name(void)
{
        assert_int_equal(rename(in(".bashrc"), in(".config/fish/config.fish")), 0);
}

static void make_hooks(void)
{
        assert_int_equal(mkdir(in(".git"), 0700), 0);
}

/* The same name, another folder: its content is older than the stamps. */
static void replace_folder(void)
{
        assert_int_equal(rename(in(".vim/a"), in(".vim/a.old")), 0);
        assert_int_equal(rename(in(".vim/a.old/b"), in(".vim/a")), 0);
}

TEST_WITH(test_every_change_ends_it, set_up, tear_down)
{
        static void (*const changes[])(void) = { make_name,   make_link,  remove_name,
                                                 rename_name, make_hooks, replace_folder };

        for (size_t i = 0; i < CG_ARRAY_LEN(changes); i++) {
                cg_auto_stamps struct cg_stamps stamps = { 0 };
                cg_auto_json json_t *homes = scan(&stamps);

                assert_true(cg_stamps_hold(&stamps));
                changes[i]();
                assert_false(cg_stamps_hold(&stamps));
                tear_down(state);
                set_up(state);
        }
}

/* Changes within a moment may have the same time. */
TEST_WITH(test_a_folder_that_has_just_changed_is_scanned_again, set_up, tear_down)
{
        cg_auto_stamps struct cg_stamps stamps = { 0 };
        cg_auto_json json_t *homes = NULL;

        ahead = 0;
        homes = scan(&stamps);
        assert_false(cg_stamps_hold(&stamps));
}
