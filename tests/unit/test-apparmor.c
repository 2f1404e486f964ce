/* Leaving cellgate's AppArmor profile: which labels are left, and by what write. */
#include "sandbox/apparmor.h"
#include "unit.h"

/* @after: the file's content afterwards. Returns the result of cg_apparmor_leave(). */
static int leave(const char *label, char after[64])
{
        char path[] = "/tmp/cg-apparmor-XXXXXX";
        int fd = mkstemp(path), r;
        ssize_t n;

        assert_true(fd >= 0);
        assert_int_equal(write(fd, label, strlen(label)), strlen(label));
        r = cg_apparmor_leave(path, NULL);
        n = pread(fd, after, 63, 0);
        after[n > 0 ? n : 0] = '\0';
        close(fd);
        unlink(path);
        return r;
}

TEST(test_own_profiles_are_left)
{
        static const char *const labels[] = { "cellgate-kernel (unconfined)\n",
                                              "cellgate_opt_x-kernel (unconfined)\n" };
        char after[64];

        for (size_t i = 0; i < 2; i++) {
                assert_int_equal(leave(labels[i], after), 0);
                assert_memory_equal(after, "changeprofile unconfined", strlen("changeprofile unconfined"));
        }
}

TEST(test_others_stay)
{
        static const char *const labels[] = { "unconfined\n", "firefox (enforce)\n", "cell\n", "" };
        char after[64];

        for (size_t i = 0; i < sizeof(labels) / sizeof(*labels); i++) {
                assert_int_equal(leave(labels[i], after), 0);
                assert_string_equal(after, labels[i]);
        }
        assert_int_equal(cg_apparmor_leave("/nonexistent", NULL), 0);
}

TEST(test_what_cannot_be_left_is_an_error)
{
        int fd = memfd_create("label", MFD_CLOEXEC | MFD_ALLOW_SEALING);
        char path[64];

        assert_int_equal(write(fd, "cellgate-kernel", 15), 15);
        assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), 0);
        snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        FAILS(ANY_ERROR, "AppArmor profile", cg_apparmor_leave(path, &err));
        close(fd);
}
