/*
 * Cases in cases/FILE.txt, which the fuzz target of that name replays as well. "== NAME" begins a
 * section; each other line is a case: fields between " => " with C's escapes, and "" for an empty
 * one. Empty lines and lines that begin with "#" are none.
 */
#pragma once

#include "unit.h"

struct cg_case {
        const char *in, *out, *third, *fourth; /* NULL: there is no such field */
        size_t len;                            /* of in, which may have NULs */
        int line, n;
        char *next, text[16384];
};

/* Decodes the field in place; its length. */
static inline size_t cg_case_decode(char *field)
{
        static const char escapes[] = "n\nr\rt\tb\bf\fv\v\\\\0";
        char *to = field;

        if (!strcmp(field, "\"\""))
                *field = '\0';
        for (const char *p = field; *p;) {
                const char *e = *p == '\\' && p[1] ? strchr(escapes, p[1]) : NULL;

                if (*p != '\\') {
                        *to++ = *p++;
                } else if (p[1] == 'x') {
                        char hex[3] = { p[2], p[3], '\0' };

                        *to++ = (char)strtoul(hex, NULL, 16);
                        p += 4;
                } else if (e) {
                        *to++ = e[1];
                        p += 2;
                } else {
                        fail_msg("unknown escape: %s", p);
                }
        }
        *to = '\0';
        return (size_t)(to - field);
}

static inline void cg_case_fields(struct cg_case *c)
{
        const char **fields[] = { &c->in, &c->out, &c->third, &c->fourth };
        char *p = c->text;

        c->out = c->third = c->fourth = NULL;
        for (size_t i = 0; p; i++) {
                char *end = strstr(p, " => ");
                size_t len;

                assert_true(i < CG_ARRAY_LEN(fields));
                if (end)
                        *end = '\0';
                *fields[i] = p;
                len = cg_case_decode(p);
                c->len = i ? c->len : len;
                p = end ? end + 4 : NULL;
        }
}

/* The next case of @section; false after its last one. Fails where there is none. */
static inline bool cg_case_next(struct cg_case *c, const char *section)
{
        char head[100], *line;
        size_t len;

        if (!cg_cases_text)
                OK(cg_read_file(cg_cases_path, 1 << 20, &cg_cases_text, &len, &err));
        if (!c->next) {
                cg_case_report();
                snprintf(head, sizeof(head), "\n== %s\n", section);
                line = strstr(cg_cases_text, head);
                if (!line)
                        fail_msg("no section \"%s\" in %s", section, cg_cases_path);
                c->next = line + strlen(head);
                for (const char *p = cg_cases_text; p < c->next; p++)
                        c->line += *p == '\n';
        }
        do {
                line = c->next;
                len = strcspn(line, "\n");
                if (!*line || strncmp(line, "== ", 3) == 0) {
                        assert_true(c->n > 0);
                        cg_case_now[0] = '\0';
                        return false;
                }
                c->next = line + len + 1;
                c->line++;
        } while (len == 0 || *line == '#');
        assert_true(len < sizeof(c->text));
        memcpy(c->text, line, len);
        c->text[len] = '\0';
        snprintf(cg_case_now, sizeof(cg_case_now), "%s:%d: %.*s", cg_cases_path, c->line, (int)len, line);
        cg_case_fields(c);
        c->n++;
        return true;
}

/* The code that a field names. */
static inline int cg_case_code(const char *name)
{
        static const struct {
                const char *name;
                int code;
        } all[] = { { "parse", CG_E_PARSE }, { "inval", CG_E_INVAL }, { "unsupported", CG_E_UNSUPPORTED } };

        for (size_t i = 0; i < CG_ARRAY_LEN(all); i++)
                if (!strcmp(name, all[i].name))
                        return all[i].code;
        fail_msg("no code has the name %s", name);
        return 0;
}

/* c is a struct cg_case in the loop's body. */
#define EACH_CASE(c, section) for (struct cg_case c = { .next = NULL }; cg_case_next(&c, section);)
