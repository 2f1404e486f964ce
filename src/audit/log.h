/*
 * The audit log: SQLite files of records, each chained to the one before by SHA-256, with signed
 * heads. Used by cellgate-audit only: as the writer of a supervisor, and as `cellgate audit`.
 *
 * The files are audit-000001.sqlite and so on; a full one ends with the record "log.rotated" and
 * its successor begins with "log.started". Several supervisors may write to one log.
 *
 * A record's digest is the SHA-256 of its number and time (64 bits, big endian) and of session,
 * kind and body, each after its length (32 bits, big endian). Its hash is the SHA-256 of the hash
 * of the record before (zeros for the first) and its digest. A head is a signature (Ed25519) of
 * "cellgate audit head", a NUL, the number and the hash of a record.
 */
#pragma once

#include "audit/audit.h"
#include "base/buf.h"

#define CG_AUDIT_HASH      32
#define CG_AUDIT_SIGNATURE 64
#define CG_AUDIT_KEY       32
/* A head is signed after so many records, and with the end of each session. */
#define CG_AUDIT_SIGN_EVERY 64
#define CG_AUDIT_ENDED      "session.ended"

struct cg_audit_log;

/* A record; texts are borrowed. */
struct cg_audit_record {
        int64_t seq;     /* from 1 on */
        int64_t time_us; /* since the epoch */
        const char *session, *kind;
        const char *body; /* JSON object */
        size_t body_len;
        uint8_t hash[CG_AUDIT_HASH];
        bool is_head; /* it has a signature */
        uint8_t signature[CG_AUDIT_SIGNATURE];
};

/*
 * Opens the log in the folder @dir; @write: to append, and makes it, with its key, where it is
 * absent. @key: file of the key; NULL: the log's own, or to read the one that the log names. A log
 * has one key: with another, appending fails. CG_E_NOTFOUND: there is no log, or no such key.
 */
int cg_audit_open(const char *dir, const char *key, bool write, struct cg_audit_log **ret,
                  struct cg_err *err);
struct cg_audit_log *cg_audit_close(struct cg_audit_log *log);
const uint8_t *cg_audit_public_key(const struct cg_audit_log *log);

/* Appends records in one transaction; sets their seq and hash. Signs where it is due. */
int cg_audit_append(struct cg_audit_log *log, struct cg_audit_record *records, size_t n, struct cg_err *err);
/* The next file is begun when one has this size. */
void cg_audit_set_max_bytes(struct cg_audit_log *log, int64_t bytes);
/* The last head that was signed since this was called last. False: none. */
bool cg_audit_take_head(struct cg_audit_log *log, struct cg_audit_record *ret);
/* A head as a line of JSON, without its end. */
#define CG_AUDIT_HEAD_TEXT 400
void cg_audit_head_text(const struct cg_audit_record *r, const uint8_t key[CG_AUDIT_KEY],
                        char ret[CG_AUDIT_HEAD_TEXT]);
/* Moves what was appended into the file itself, where that is due: not before a reply. */
void cg_audit_tidy(struct cg_audit_log *log);

/* Returns 0 to go on; CG_CLOSED or negative ends the reading with that. */
typedef int (*cg_audit_fn)(void *data, const struct cg_audit_record *r, struct cg_err *err);
/* Calls @fn for each record as it is in the log, from the number @from on. */
int cg_audit_read(struct cg_audit_log *log, int64_t from, cg_audit_fn fn, void *data, struct cg_err *err);
/* The number of the last signed record, which may have been removed; 0: there is none. */
int cg_audit_last_head(struct cg_audit_log *log, int64_t *ret, struct cg_err *err);

/* ---- digests and signatures */
void cg_audit_digest(const struct cg_audit_record *r, uint8_t ret[CG_AUDIT_HASH]);
void cg_audit_chain(const uint8_t before[CG_AUDIT_HASH], const uint8_t digest[CG_AUDIT_HASH],
                    uint8_t ret[CG_AUDIT_HASH]);
bool cg_audit_signed(const struct cg_audit_record *r, const uint8_t key[CG_AUDIT_KEY]);
/*
 * Adds to a manifest, an object in JSON, its member "signature", whose value is @ret as well. It is
 * Ed25519 of "cellgate artifacts", a NUL, and the text before the member.
 */
int cg_audit_sign_manifest(const struct cg_audit_log *log, struct cg_buf *manifest,
                           char ret[CG_AUDIT_SIGNATURE_HEX], struct cg_err *err);
bool cg_audit_manifest_signed(const char *text, size_t len, const uint8_t key[CG_AUDIT_KEY]);
/* @n bytes of 2 * @n hexadecimal digits and nothing else. */
bool cg_audit_unhex(const char *text, uint8_t *ret, size_t n);
