/* The audit log's files: appending and reading. See log.h. */
#include "audit/log.h"

#include <endian.h>
#include <nettle/eddsa.h>
#include <nettle/sha2.h>
#include <sqlite3.h>
#include <sys/random.h>
#include "base/fd.h"
#include "base/text.h"

/* Writers of one log hold its lock for a moment each. */
#define BUSY_MS 2000
/* A file is as large as a text editor or a mail can take. */
#define MAX_BYTES ((int64_t)256 << 20)
/* Pages of the write-ahead log after which they are moved into the file. */
#define TIDY_PAGES 1000
/* The beginning of the body of log.started. */
#define KEY_MEMBER "{\"key\":\""

static const char schema[] =
        "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; PRAGMA wal_autocheckpoint=0;"
        "CREATE TABLE IF NOT EXISTS record(seq INTEGER PRIMARY KEY, time INTEGER NOT NULL,"
        " session TEXT NOT NULL, kind TEXT NOT NULL, body TEXT NOT NULL, hash BLOB NOT NULL);"
        "CREATE TABLE IF NOT EXISTS head(seq INTEGER PRIMARY KEY, signature BLOB NOT NULL);";

enum statement { BEGIN, COMMIT, ROLLBACK, LAST, INSERT, SIGN, FIRST, SIGNED, STATEMENTS };
static const char *const statements[STATEMENTS] = {
        [BEGIN] = "BEGIN IMMEDIATE",
        [COMMIT] = "COMMIT",
        [ROLLBACK] = "ROLLBACK",
        [LAST] = "SELECT seq, hash, kind FROM record ORDER BY seq DESC LIMIT 1",
        [INSERT] = "INSERT INTO record VALUES(?, ?, ?, ?, ?, ?)",
        [SIGN] = "INSERT INTO head VALUES(?, ?)",
        [FIRST] = "SELECT body FROM record ORDER BY seq LIMIT 1",
        [SIGNED] = "SELECT coalesce((SELECT max(seq) FROM head), (SELECT min(seq) - 1 FROM record), 0)",
};

struct cg_audit_log {
        char *dir;
        bool write;
        unsigned file;        /* the number of the open one; 0: none */
        unsigned first, last; /* of the files that were there; 0: none */
        int64_t max_bytes;
        int pages;                   /* of the write-ahead log */
        bool key_checked;            /* the open file was begun with this key */
        bool has_room;               /* it was not full, and grows by checkpoints only */
        struct cg_audit_record head; /* that was signed last, to be sent elsewhere; seq 0: none */
        uint8_t private_key[CG_AUDIT_KEY], public_key[CG_AUDIT_KEY];
        sqlite3 *db;
        sqlite3_stmt *st[STATEMENTS];
};

/* ------------------------------------------------------------------ digests and signatures */

static void hash_number(struct sha256_ctx *c, uint64_t v, size_t bytes)
{
        uint64_t be = htobe64(v << (64 - 8 * bytes));

        sha256_update(c, bytes, (const uint8_t *)&be);
}

static void hash_text(struct sha256_ctx *c, const char *text, size_t len)
{
        hash_number(c, len, 4);
        sha256_update(c, len, (const uint8_t *)text);
}

void cg_audit_digest(const struct cg_audit_record *r, uint8_t ret[CG_AUDIT_HASH])
{
        struct sha256_ctx c;

        sha256_init(&c);
        hash_number(&c, (uint64_t)r->seq, 8);
        hash_number(&c, (uint64_t)r->time_us, 8);
        hash_text(&c, r->session, strlen(r->session));
        hash_text(&c, r->kind, strlen(r->kind));
        hash_text(&c, r->body, r->body_len);
        sha256_digest(&c, CG_AUDIT_HASH, ret);
}

void cg_audit_chain(const uint8_t before[CG_AUDIT_HASH], const uint8_t digest[CG_AUDIT_HASH],
                    uint8_t ret[CG_AUDIT_HASH])
{
        struct sha256_ctx c;

        sha256_init(&c);
        sha256_update(&c, CG_AUDIT_HASH, before);
        sha256_update(&c, CG_AUDIT_HASH, digest);
        sha256_digest(&c, CG_AUDIT_HASH, ret);
}

#define HEAD_TEXT "cellgate audit head"

struct head_text {
        uint8_t bytes[sizeof(HEAD_TEXT) + 8 + CG_AUDIT_HASH];
};

static struct head_text head_text(const struct cg_audit_record *r)
{
        struct head_text t = { .bytes = HEAD_TEXT };
        uint64_t be = htobe64((uint64_t)r->seq);

        memcpy(t.bytes + sizeof(HEAD_TEXT), &be, sizeof(be));
        memcpy(t.bytes + sizeof(HEAD_TEXT) + 8, r->hash, CG_AUDIT_HASH);
        return t;
}

bool cg_audit_signed(const struct cg_audit_record *r, const uint8_t key[CG_AUDIT_KEY])
{
        struct head_text t = head_text(r);

        return r->is_head && ed25519_sha512_verify(key, sizeof(t.bytes), t.bytes, r->signature);
}

#define MANIFEST_TEXT    "cellgate artifacts"
#define SIGNATURE_MEMBER ",\"signature\":\""

/* The signature of a manifest covers @len bytes of its text. */
static int manifest_text(struct cg_buf *b, const char *text, size_t len, struct cg_err *err)
{
        cg_buf_init(b, CG_AUDIT_MAX_BODY);
        cg_buf_add(b, MANIFEST_TEXT, sizeof(MANIFEST_TEXT));
        cg_buf_add(b, text, len);
        return cg_buf_end(b, err);
}

int cg_audit_sign_manifest(const struct cg_audit_log *log, struct cg_buf *manifest,
                           char ret[CG_AUDIT_SIGNATURE_HEX], struct cg_err *err)
{
        uint8_t signature[CG_AUDIT_SIGNATURE];
        cg_auto_buf struct cg_buf b;

        cg_buf_cut(manifest, manifest->len - strlen("}"));
        if (manifest_text(&b, manifest->data, manifest->len, err) < 0)
                return -1;
        ed25519_sha512_sign(log->public_key, log->private_key, b.len, (const uint8_t *)b.data, signature);
        cg_hex(ret, signature, sizeof(signature));
        cg_buf_addf(manifest, SIGNATURE_MEMBER "%s\"}", ret);
        return cg_buf_end(manifest, err);
}

bool cg_audit_manifest_signed(const char *text, size_t len, const uint8_t key[CG_AUDIT_KEY])
{
        const size_t end = strlen(SIGNATURE_MEMBER "\"}") + CG_AUDIT_SIGNATURE_HEX - 1;
        const char *member = len > end ? text + len - end : NULL;
        char hex[CG_AUDIT_SIGNATURE_HEX] = "";
        uint8_t signature[CG_AUDIT_SIGNATURE];
        cg_auto_buf struct cg_buf b = { .max = 0 };

        if (!member || strncmp(member, SIGNATURE_MEMBER, strlen(SIGNATURE_MEMBER)) != 0)
                return false;
        memcpy(hex, member + strlen(SIGNATURE_MEMBER), sizeof(hex) - 1);
        return cg_audit_unhex(hex, signature, sizeof(signature)) && strcmp(text + len - 2, "\"}") == 0 &&
               manifest_text(&b, text, len - end, NULL) == 0 &&
               ed25519_sha512_verify(key, b.len, (const uint8_t *)b.data, signature);
}

/* Reads 2 * @n digits; the end of the text is none. */
static bool unhex(const char *text, uint8_t *ret, size_t n)
{
        for (size_t i = 0; i < n; i++) {
                int high = cg_hex_digit(text[2 * i]), low = high < 0 ? -1 : cg_hex_digit(text[2 * i + 1]);

                if (low < 0)
                        return false;
                ret[i] = (uint8_t)(high << 4 | low);
        }
        return true;
}

bool cg_audit_unhex(const char *text, uint8_t *ret, size_t n)
{
        return text && strlen(text) == 2 * n && unhex(text, ret, n);
}

/* ------------------------------------------------------------------ files */

static int db_fail(struct cg_audit_log *log, struct cg_err *err)
{
        return cg_fail(err, CG_E_SYS, "audit log %s/audit-%06u.sqlite: %s", log->dir, log->file,
                       log->db ? sqlite3_errmsg(log->db) : "out of memory");
}

static void close_file(struct cg_audit_log *log)
{
        for (size_t i = 0; i < STATEMENTS; i++) {
                sqlite3_finalize(log->st[i]);
                log->st[i] = NULL;
        }
        sqlite3_close(log->db);
        log->db = NULL;
}

static bool file_path(const struct cg_audit_log *log, unsigned number, char ret[PATH_MAX])
{
        return snprintf(ret, PATH_MAX, "%s/audit-%06u.sqlite", log->dir, number) < PATH_MAX;
}

static int on_wal(void *data, sqlite3 *db, const char *name, int pages)
{
        struct cg_audit_log *log = data;

        log->pages = pages;
        return SQLITE_OK;
}

/* SQLite does not wait for other writers that begin the same file. */
static int begin_file(sqlite3 *db)
{
        int64_t end = cg_now_ms() + BUSY_MS;
        int r;

        while ((r = sqlite3_exec(db, schema, NULL, NULL, NULL)) == SQLITE_BUSY && cg_now_ms() < end)
                sqlite3_sleep(5);
        return r;
}

static int open_file(struct cg_audit_log *log, unsigned number, struct cg_err *err)
{
        char path[PATH_MAX];
        int flags = log->write ? SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE : SQLITE_OPEN_READONLY;

        close_file(log);
        log->file = number;
        log->key_checked = log->has_room = false;
        if (!file_path(log, number, path))
                return cg_fail(err, CG_E_LIMIT, "path of the audit log is too long");
        if (sqlite3_open_v2(path, &log->db, flags | SQLITE_OPEN_NOFOLLOW, NULL) != SQLITE_OK)
                return db_fail(log, err);
        sqlite3_busy_timeout(log->db, BUSY_MS);
        sqlite3_db_config(log->db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
        sqlite3_db_config(log->db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
        if (!log->write)
                return 0;
        if (begin_file(log->db) != SQLITE_OK)
                return db_fail(log, err);
        sqlite3_wal_hook(log->db, on_wal, log);
        return 0;
}

/* NULL, which sqlite3_step() refuses: the file is no log. */
static sqlite3_stmt *prepared(struct cg_audit_log *log, enum statement s)
{
        if (!log->st[s])
                sqlite3_prepare_v3(log->db, statements[s], -1, SQLITE_PREPARE_PERSISTENT, &log->st[s], NULL);
        return log->st[s];
}

/* The key that the file's first record names. False: it names none. */
static bool named_key(struct cg_audit_log *log, uint8_t ret[CG_AUDIT_KEY])
{
        sqlite3_stmt *st = prepared(log, FIRST);
        const char *body = (const char *)(sqlite3_step(st) == SQLITE_ROW ? sqlite3_column_text(st, 0) : NULL);
        bool found = body && strncmp(body, KEY_MEMBER, strlen(KEY_MEMBER)) == 0 &&
                     unhex(body + strlen(KEY_MEMBER), ret, CG_AUDIT_KEY);

        sqlite3_reset(st);
        return found;
}

/* The lowest and the highest number of a file; 0: there is none. */
static void find_files(struct cg_audit_log *log)
{
        unsigned number;
        cg_auto_dir DIR *d = opendir(log->dir);
        struct dirent *e;
        char end;

        log->first = log->last = 0;
        while (d && (e = readdir(d))) {
                if (sscanf(e->d_name, "audit-%6u.sqlit%c", &number, &end) != 2 || strlen(e->d_name) != 19)
                        continue;
                log->first = !log->first || number < log->first ? number : log->first;
                log->last = CG_MAX(number, log->last);
        }
}

/* ------------------------------------------------------------------ the key */

static int make_key(const char *path, struct cg_err *err)
{
        uint8_t key[CG_AUDIT_KEY];
        char text[2 * CG_AUDIT_KEY + 2];
        char made[PATH_MAX + 32];
        int fd, r = 0;

        if (getrandom(key, sizeof(key), 0) != sizeof(key))
                return cg_fail_errno(err, "key of the audit log");
        cg_hex(text, key, sizeof(key));
        text[2 * CG_AUDIT_KEY] = '\n';
        snprintf(made, sizeof(made), "%s.%ld", path, (long)getpid());
        fd = open(made, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        if (fd < 0)
                return cg_fail_errno(err, "%s", made);
        if (cg_write_all(fd, text, 2 * CG_AUDIT_KEY + 1, err) < 0 || fsync(fd) < 0)
                r = cg_fail_errno(err, "%s", made);
        /* Another writer may have made one meanwhile: the first counts. */
        else if (link(made, path) < 0 && errno != EEXIST)
                r = cg_fail_errno(err, "%s", path);
        close(fd);
        unlink(made);
        explicit_bzero(key, sizeof(key));
        explicit_bzero(text, sizeof(text));
        return r;
}

/* The key that the log's first file names: of a log that is signed with a key from elsewhere. */
static int read_named_key(struct cg_audit_log *log, struct cg_err *err)
{
        if (!log->first)
                return cg_fail(err, CG_E_NOTFOUND, "there is no audit log in %s", log->dir);
        if (open_file(log, log->first, err) < 0)
                return -1;
        if (!named_key(log, log->public_key))
                return cg_fail(err, CG_E_STATE, "record 1 does not name the key of the log in %s", log->dir);
        return 0;
}

/* @file: NULL: the log's own key. */
static int read_key(struct cg_audit_log *log, const char *file, struct cg_err *err)
{
        char path[PATH_MAX];
        cg_auto_free char *text = NULL;
        struct stat st;
        size_t len;
        int n = file ? snprintf(path, sizeof(path), "%s", file)
                     : snprintf(path, sizeof(path), "%s/key", log->dir);

        if (n >= (int)sizeof(path))
                return cg_fail(err, CG_E_LIMIT, "path of the audit log's key is too long");
        if (lstat(path, &st) < 0) {
                if (errno == ENOENT && !file && !log->write)
                        return read_named_key(log, err);
                if (errno != ENOENT || file)
                        return cg_fail_errno(err, "key of the audit log: %s", path);
                if (make_key(path, err) < 0)
                        return -1;
                if (lstat(path, &st) < 0)
                        return cg_fail_errno(err, "%s", path);
        }
        if (!S_ISREG(st.st_mode) || (st.st_mode & 077) || st.st_uid != geteuid())
                return cg_fail(err, CG_E_STATE,
                               "%s must be a file of this user with mode 0600: others could sign with it",
                               path);
        if (cg_read_regular(path, 256, &text, &len, err) < 0)
                return -1;
        if (!unhex(text, log->private_key, CG_AUDIT_KEY))
                return cg_fail(err, CG_E_PARSE, "%s is not a key: 64 hexadecimal digits", path);
        ed25519_sha512_public_key(log->public_key, log->private_key);
        explicit_bzero(text, len);
        return 0;
}

const uint8_t *cg_audit_public_key(const struct cg_audit_log *log)
{
        return log->public_key;
}

/*
 * The file before the last one, whose end says where the last one begins: a writer that made the
 * last one may have ended before it wrote to it.
 */
static int open_last(struct cg_audit_log *log, struct cg_err *err)
{
        char path[PATH_MAX];
        bool before = log->last > 1 && file_path(log, log->last - 1, path) && access(path, F_OK) == 0;

        return open_file(log, !log->last ? 1 : log->last - before, err);
}

int cg_audit_open(const char *dir, const char *key, bool write, struct cg_audit_log **ret, struct cg_err *err)
{
        struct cg_audit_log *log = calloc(1, sizeof(*log));

        if (!log || !(log->dir = strdup(dir))) {
                free(log);
                return cg_fail(err, CG_E_NOMEM, "audit log");
        }
        log->write = write;
        log->max_bytes = MAX_BYTES;
        find_files(log);
        if (read_key(log, key, err) < 0 || (write && open_last(log, err) < 0)) {
                cg_audit_close(log);
                return -1;
        }
        *ret = log;
        return 0;
}

struct cg_audit_log *cg_audit_close(struct cg_audit_log *log)
{
        if (!log)
                return NULL;
        close_file(log);
        explicit_bzero(log->private_key, sizeof(log->private_key));
        free(log->dir);
        free(log);
        return NULL;
}

void cg_audit_set_max_bytes(struct cg_audit_log *log, int64_t bytes)
{
        log->max_bytes = bytes;
        log->has_room = false;
}

void cg_audit_tidy(struct cg_audit_log *log)
{
        if (log->pages < TIDY_PAGES)
                return;
        log->pages = 0;
        log->has_room = false;
        sqlite3_wal_checkpoint_v2(log->db, NULL, SQLITE_CHECKPOINT_PASSIVE, NULL, NULL);
}

/* ------------------------------------------------------------------ appending */

/* Runs a statement that returns no row. */
static int step(struct cg_audit_log *log, enum statement s, struct cg_err *err)
{
        sqlite3_stmt *st = prepared(log, s);
        int r = sqlite3_step(st);

        if (st) {
                sqlite3_reset(st);
                sqlite3_clear_bindings(st);
        }
        return r == SQLITE_DONE ? 0 : db_fail(log, err);
}

enum last { NO_RECORD, LAST_RECORD, ROTATED };

/* Number and hash of the file's last record, if it has one. */
static int last_record(struct cg_audit_log *log, struct cg_audit_record *ret, enum last *what,
                       struct cg_err *err)
{
        sqlite3_stmt *st = prepared(log, LAST);
        int r = sqlite3_step(st);

        *what = NO_RECORD;
        if (r == SQLITE_ROW) {
                ret->seq = sqlite3_column_int64(st, 0);
                if (sqlite3_column_bytes(st, 1) == CG_AUDIT_HASH)
                        memcpy(ret->hash, sqlite3_column_blob(st, 1), CG_AUDIT_HASH);
                *what = strcmp((const char *)sqlite3_column_text(st, 2), "log.rotated") == 0 ? ROTATED
                                                                                             : LAST_RECORD;
        }
        sqlite3_reset(st);
        return r == SQLITE_ROW || r == SQLITE_DONE ? 0 : db_fail(log, err);
}

static int insert(struct cg_audit_log *log, struct cg_audit_record *last, struct cg_audit_record *r,
                  struct cg_err *err)
{
        sqlite3_stmt *st = prepared(log, INSERT);
        uint8_t digest[CG_AUDIT_HASH];

        r->seq = last->seq + 1;
        cg_audit_digest(r, digest);
        cg_audit_chain(last->hash, digest, r->hash);
        sqlite3_bind_int64(st, 1, r->seq);
        sqlite3_bind_int64(st, 2, r->time_us);
        sqlite3_bind_text(st, 3, r->session, -1, SQLITE_STATIC);
        sqlite3_bind_text(st, 4, r->kind, -1, SQLITE_STATIC);
        sqlite3_bind_text64(st, 5, r->body, r->body_len, SQLITE_STATIC, SQLITE_UTF8);
        sqlite3_bind_blob(st, 6, r->hash, CG_AUDIT_HASH, SQLITE_STATIC);
        if (step(log, INSERT, err) < 0)
                return -1;
        *last = *r;
        return 0;
}

static int sign(struct cg_audit_log *log, const struct cg_audit_record *r, struct cg_err *err)
{
        uint8_t signature[CG_AUDIT_SIGNATURE];
        struct head_text t = head_text(r);
        sqlite3_stmt *st = prepared(log, SIGN);

        ed25519_sha512_sign(log->public_key, log->private_key, sizeof(t.bytes), t.bytes, signature);
        log->head = *r;
        log->head.is_head = true;
        memcpy(log->head.signature, signature, sizeof(signature));
        sqlite3_bind_int64(st, 1, r->seq);
        sqlite3_bind_blob(st, 2, signature, CG_AUDIT_SIGNATURE, SQLITE_STATIC);
        return step(log, SIGN, err);
}

static int signed_seq(struct cg_audit_log *log, int64_t *ret, struct cg_err *err)
{
        sqlite3_stmt *st = prepared(log, SIGNED);
        int r = sqlite3_step(st);

        *ret = r == SQLITE_ROW ? sqlite3_column_int64(st, 0) : 0;
        sqlite3_reset(st);
        return r == SQLITE_ROW ? 0 : db_fail(log, err);
}

/* The first record of a file. */
static int insert_start(struct cg_audit_log *log, struct cg_audit_record *last, int64_t time_us,
                        struct cg_err *err)
{
        char body[2 * CG_AUDIT_KEY + 64], hex[2 * CG_AUDIT_KEY + 1];
        struct cg_audit_record r = { .time_us = time_us, .session = "", .kind = "log.started", .body = body };

        cg_hex(hex, log->public_key, CG_AUDIT_KEY);
        r.body_len = (size_t)snprintf(body, sizeof(body), KEY_MEMBER "%s\",\"file\":%u}", hex, log->file);
        return insert(log, last, &r, err);
}

static bool is_full(const struct cg_audit_log *log)
{
        char path[PATH_MAX];
        struct stat st;

        return file_path(log, log->file, path) && stat(path, &st) == 0 && st.st_size >= log->max_bytes;
}

/* Signs the record just inserted if that is due; @from: the last signed one. */
static int sign_due(struct cg_audit_log *log, const struct cg_audit_record *r, int64_t *from, bool due,
                    struct cg_err *err)
{
        if (!due && r->seq - *from < CG_AUDIT_SIGN_EVERY)
                return 0;
        *from = r->seq;
        return sign(log, r, err);
}

/* Within a transaction. */
static int insert_all(struct cg_audit_log *log, struct cg_audit_record *last, struct cg_audit_record *records,
                      size_t n, struct cg_err *err)
{
        struct cg_audit_record end = { .session = "", .kind = "log.rotated", .body = "{}", .body_len = 2 };
        int64_t from;

        if (signed_seq(log, &from, err) < 0)
                return -1;
        for (size_t i = 0; i < n; i++) {
                if (insert(log, last, &records[i], err) < 0 ||
                    sign_due(log, last, &from, strcmp(records[i].kind, CG_AUDIT_ENDED) == 0, err) < 0)
                        return -1;
        }
        log->has_room = log->has_room || !is_full(log);
        if (log->has_room)
                return 0;
        end.time_us = last->time_us;
        if (insert(log, last, &end, err) < 0)
                return -1;
        return sign_due(log, last, &from, true, err);
}

/* The chain of one key cannot be continued with another, whichever was replaced. */
static int check_key(struct cg_audit_log *log, struct cg_err *err)
{
        uint8_t key[CG_AUDIT_KEY];

        if (log->key_checked)
                return 0;
        log->key_checked = named_key(log, key) && memcmp(key, log->public_key, sizeof(key)) == 0;
        if (!log->key_checked)
                return cg_fail(err, CG_E_STATE,
                               "the audit log in %s was begun with another key: give that one with"
                               " --audit-key, or move the log away to begin a new one",
                               log->dir);
        return 0;
}

/* Begins a transaction in the file that is the current one. */
static int begin(struct cg_audit_log *log, struct cg_audit_record *last, int64_t time_us, struct cg_err *err)
{
        enum last what;

        for (;;) {
                if (step(log, BEGIN, err) < 0 || last_record(log, last, &what, err) < 0)
                        return -1;
                if (what == NO_RECORD)
                        return insert_start(log, last, time_us, err);
                if (check_key(log, err) < 0)
                        return -1;
                if (what != ROTATED)
                        return 0;
                step(log, ROLLBACK, NULL);
                if (open_file(log, log->file + 1, err) < 0)
                        return -1;
        }
}

int cg_audit_append(struct cg_audit_log *log, struct cg_audit_record *records, size_t n, struct cg_err *err)
{
        struct cg_audit_record last = { .seq = 0 };

        if (!n)
                return 0;
        log->head.seq = 0;
        if (begin(log, &last, records[0].time_us, err) == 0 && insert_all(log, &last, records, n, err) == 0 &&
            step(log, COMMIT, err) == 0)
                return 0;
        log->head.seq = 0;
        if (log->db && !sqlite3_get_autocommit(log->db))
                step(log, ROLLBACK, NULL);
        return -1;
}

bool cg_audit_take_head(struct cg_audit_log *log, struct cg_audit_record *ret)
{
        *ret = log->head;
        log->head.seq = 0;
        return ret->seq != 0;
}

void cg_audit_head_text(const struct cg_audit_record *r, const uint8_t key[CG_AUDIT_KEY],
                        char ret[CG_AUDIT_HEAD_TEXT])
{
        char hash[2 * CG_AUDIT_HASH + 1], signature[2 * CG_AUDIT_SIGNATURE + 1], hex[2 * CG_AUDIT_KEY + 1];

        cg_hex(hash, r->hash, CG_AUDIT_HASH);
        cg_hex(signature, r->signature, CG_AUDIT_SIGNATURE);
        cg_hex(hex, key, CG_AUDIT_KEY);
        snprintf(ret, CG_AUDIT_HEAD_TEXT,
                 "{\"seq\":%lld,\"hash\":\"%s\",\"signature\":\"%s\",\"key\":\"%s\"}", (long long)r->seq,
                 hash, signature, hex);
}

/* ------------------------------------------------------------------ reading */

static const char all_records[] = "SELECT seq, time, session, kind, body, hash, signature FROM record"
                                  " LEFT JOIN head USING(seq) WHERE seq >= ? ORDER BY seq";

static int read_row(struct cg_audit_log *log, sqlite3_stmt *st, cg_audit_fn fn, void *data,
                    struct cg_err *err)
{
        struct cg_audit_record r = { .seq = sqlite3_column_int64(st, 0),
                                     .time_us = sqlite3_column_int64(st, 1),
                                     .session = (const char *)sqlite3_column_text(st, 2),
                                     .kind = (const char *)sqlite3_column_text(st, 3),
                                     .body = (const char *)sqlite3_column_text(st, 4),
                                     .body_len = (size_t)sqlite3_column_bytes(st, 4) };

        if (!r.session || !r.kind || !r.body)
                return db_fail(log, err);
        if (sqlite3_column_bytes(st, 5) == CG_AUDIT_HASH)
                memcpy(r.hash, sqlite3_column_blob(st, 5), CG_AUDIT_HASH);
        /* A head of another length is none that could be valid. */
        r.is_head = sqlite3_column_type(st, 6) != SQLITE_NULL;
        if (sqlite3_column_bytes(st, 6) == CG_AUDIT_SIGNATURE)
                memcpy(r.signature, sqlite3_column_blob(st, 6), CG_AUDIT_SIGNATURE);
        return fn(data, &r, err);
}

static int read_file(struct cg_audit_log *log, int64_t from, cg_audit_fn fn, void *data, struct cg_err *err)
{
        sqlite3_stmt *st;
        int r = 0, got = SQLITE_DONE;

        if (sqlite3_prepare_v2(log->db, all_records, -1, &st, NULL) != SQLITE_OK)
                return db_fail(log, err);
        sqlite3_bind_int64(st, 1, from);
        while (r == 0 && (got = sqlite3_step(st)) == SQLITE_ROW)
                r = read_row(log, st, fn, data, err);
        if (r == 0 && got != SQLITE_DONE)
                r = db_fail(log, err);
        sqlite3_finalize(st);
        return r;
}

int cg_audit_read(struct cg_audit_log *log, int64_t from, cg_audit_fn fn, void *data, struct cg_err *err)
{
        int r = 0;

        for (unsigned n = log->first; n && n <= log->last && r == 0; n++) {
                if (open_file(log, n, err) < 0)
                        return -1;
                r = read_file(log, from, fn, data, err);
        }
        return r;
}

int cg_audit_last_head(struct cg_audit_log *log, int64_t *ret, struct cg_err *err)
{
        *ret = 0;
        for (unsigned n = log->last; n && n >= log->first && !*ret; n--)
                if (open_file(log, n, err) < 0 || signed_seq(log, ret, err) < 0)
                        return -1;
        return 0;
}
