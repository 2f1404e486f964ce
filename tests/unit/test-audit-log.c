/* The audit log's files: one chain through all of them, also with several writers. */
#include "audit/log.h"
#include "base/buf.h"
#include "unit.h"

static struct cg_audit_log *open_log(bool write)
{
        struct cg_audit_log *log = NULL;

        OK(cg_audit_open(test_dir, NULL, write, &log, &err));
        return log;
}

static int64_t append(struct cg_audit_log *log, const char *kind)
{
        struct cg_audit_record r = {
                .time_us = 5, .session = "s", .kind = kind, .body = "{\"a\":1}", .body_len = 7
        };

        OK(cg_audit_append(log, &r, 1, &err));
        return r.seq;
}

struct seen {
        int64_t last;
        unsigned rotated, started, heads;
        const uint8_t *key;
        uint8_t hash[CG_AUDIT_HASH];
};

static int check(void *data, const struct cg_audit_record *r, struct cg_err *err)
{
        struct seen *s = data;
        uint8_t digest[CG_AUDIT_HASH];

        (void)err;
        assert_int_equal(r->seq, s->last + 1);
        cg_audit_digest(r, digest);
        cg_audit_chain(s->hash, digest, s->hash);
        assert_memory_equal(s->hash, r->hash, CG_AUDIT_HASH);
        if (r->is_head)
                assert_true(cg_audit_signed(r, s->key));
        s->last = r->seq;
        s->heads += r->is_head;
        s->rotated += strcmp(r->kind, "log.rotated") == 0;
        s->started += strcmp(r->kind, "log.started") == 0;
        return 0;
}

static struct seen read_all(void)
{
        struct cg_audit_log *log = open_log(false);
        struct seen s = { .key = cg_audit_public_key(log) };

        OK(cg_audit_read(log, 0, check, &s, &err));
        cg_audit_close(log);
        s.key = NULL;
        return s;
}

TEST_WITH(test_signatures, enter_folder, leave_folder)
{
        struct cg_audit_log *log = open_log(true);
        struct seen s;

        for (int i = 0; i < 2 * CG_AUDIT_SIGN_EVERY; i++)
                append(log, "notice");
        s = read_all();
        assert_int_equal(s.heads, 2);
        assert_int_equal(append(log, CG_AUDIT_ENDED), s.last + 1);
        assert_int_equal(read_all().heads, 3);
        cg_audit_close(log);
}

/* Two writers: one goes on in the file that the other one has begun. */
TEST_WITH(test_rotation, enter_folder, leave_folder)
{
        struct cg_audit_log *a = open_log(true), *b = open_log(true);
        struct seen s;

        append(b, "notice");
        cg_audit_set_max_bytes(a, 1);
        append(a, "notice"); /* fills the first file */
        cg_audit_set_max_bytes(a, INT64_MAX);
        append(b, "notice");
        append(a, "notice");
        append(b, "notice");
        cg_audit_close(b);
        /* A file that was made, and nothing written to it. */
        cg_audit_set_max_bytes(a, 1);
        append(a, "notice");
        cg_audit_close(a);
        a = open_log(true);
        append(a, "notice");
        cg_audit_close(a);
        s = read_all();
        assert_int_equal(s.rotated, 2);
        assert_int_equal(s.started, 3);
        assert_int_equal(s.last, 7 + 2 + 3);
}

/* Several writers begin the same file. */
TEST_WITH(test_beginning_together, enter_folder, leave_folder)
{
        /* None under valgrind: what a child has at its end are leaks there. */
        for (size_t round = rounds(20, 0); round > 0; round--) {
                char folder[64], byte;
                pid_t pids[6];
                int gate[2], status;

                snprintf(folder, sizeof(folder), "%s/%zu", test_dir, round);
                assert_int_equal(mkdir(folder, 0700) | pipe(gate), 0);
                for (size_t i = 0; i < CG_ARRAY_LEN(pids); i++) {
                        struct cg_audit_log *log = NULL;
                        struct cg_err err = { 0 };

                        pids[i] = fork();
                        if (pids[i] != 0)
                                continue;
                        close(gate[1]);
                        (void)!read(gate[0], &byte, 1); /* the end of file, for all at once */
                        if (cg_audit_open(folder, NULL, true, &log, &err) < 0)
                                fprintf(stderr, "%s\n", err.msg);
                        _exit(!log);
                }
                close(gate[0]);
                close(gate[1]); /* go */
                for (size_t i = 0; i < CG_ARRAY_LEN(pids); i++) {
                        assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
                        assert_int_equal(status, 0);
                }
        }
}

TEST_WITH(test_all_or_none, enter_folder, leave_folder)
{
        struct cg_audit_record r[3] = { 0 };
        struct cg_audit_log *log = open_log(true);

        append(log, "notice");
        for (int i = 0; i < 3; i++)
                r[i] = (struct cg_audit_record){
                        .session = "s", .kind = "notice", .body = "{}", .body_len = 2
                };
        r[2].body = NULL; /* NOT NULL */
        r[2].body_len = 0;
        FAILS(ANY_ERROR, "", cg_audit_append(log, r, 3, &err));
        assert_int_equal(read_all().last, 2);
        assert_int_equal(append(log, "notice"), 3);
        cg_audit_close(log);
}

TEST_WITH(test_manifests, enter_folder, leave_folder)
{
        struct cg_audit_log *log = open_log(true);
        const uint8_t *key = cg_audit_public_key(log);
        cg_auto_buf struct cg_buf m = { .max = 4096 };
        char signature[CG_AUDIT_SIGNATURE_HEX];

        cg_buf_adds(&m, "{\"files\":[]}");
        OK(cg_audit_sign_manifest(log, &m, signature, &err));
        assert_true(cg_audit_manifest_signed(m.data, m.len, key));
        for (size_t i = 0; i < m.len; i++) { /* each byte counts, and none may be missing or added */
                m.data[i] ^= 1;
                assert_false(cg_audit_manifest_signed(m.data, m.len, key));
                m.data[i] ^= 1;
                assert_false(cg_audit_manifest_signed(m.data, i, key));
        }
        cg_buf_adds(&m, "}");
        assert_false(cg_audit_manifest_signed(m.data, m.len, key));
        cg_audit_close(log);
}
