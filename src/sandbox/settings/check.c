/* Syntax checks of single texts in a settings file. */
#include "sandbox/names/names.h"
#include "sandbox/settings/domain.h"
#include "sandbox/settings/read.h"

#include <ctype.h>

#include "sandbox/sandbox.h"

static bool is_domain(const char *text, bool deny, bool port)
{
        struct cg_domains d = { .n = 0 };
        bool ok = cg_domains_add(&d, text, deny, NULL) == 0 && (port || !d.v[0].port);

        cg_domains_fini(&d);
        return ok;
}

const char *cg_check_domain(const char *text)
{
        if (is_domain(text, false, false))
                return NULL;
        return CG_DOMAIN_MESSAGE;
}

const char *cg_check_allowed_domain(const char *text)
{
        if (is_domain(text, false, true))
                return NULL;
        return CG_DOMAIN_MESSAGE ". An optional \":port\" suffix (1-65535) restricts the entry to that port.";
}

const char *cg_check_denied_domain(const char *text)
{
        if (is_domain(text, true, true))
                return NULL;
        return CG_DOMAIN_MESSAGE
                ". In deniedDomains a bare \"*\" (deny-all) is also accepted, and an optional \":port\" suffix "
                "(1-65535) restricts the entry to that port.";
}

const char *cg_check_address_range(const char *text)
{
        struct cg_range range;

        if (!strchr(text, '%') && cg_range_parse(text, &range, NULL) == 0)
                return NULL;
        return "Invalid IP address or CIDR range. Use an IPv4/IPv6 literal or CIDR, e.g. \"10.0.0.0/8\", "
               "\"192.168.1.10\", \"fc00::/7\" (IPv6 unbracketed).";
}

const char *cg_check_absolute(const char *text)
{
        if (!text[0])
                return "Path cannot be empty";
        if (text[0] == '/')
                return NULL;
        return "path must be absolute";
}

const char *cg_check_name(const char *text)
{
        if (strlen(text) >= CG_NAMES_WRITABLE_LEN)
                return "name is too long";
        if (text[0] && text[0] != '/' && text[0] != '~' && text[strlen(text) - 1] != '/' &&
            !strstr(text, "//"))
                return NULL;
        return "must be a name, or names with \"/\" between them, as \".vscode\" and \".git/config\"";
}

const char *cg_check_tier(const char *text)
{
        struct cg_tier_choice choice;

        if (cg_tier_parse(text, &choice, NULL) == 0)
                return NULL;
        return "tier must be full, landlock or auto, the latter two alone or with :refuse, :freeze or :accept";
}

const char *cg_check_url(const char *text)
{
        const char *p = text;

        while (isalnum((unsigned char)*p) || (p > text && strchr("+-.", *p) && *p))
                p++;
        if (p > text && !isdigit((unsigned char)text[0]) && strncmp(p, "://", 3) == 0 && p[3] &&
            !strpbrk(text, " \t\r\n"))
                return NULL;
        return "Invalid url";
}

const char *cg_check_variable(const char *text)
{
        static const char message[] =
                "Environment variable name must start with a letter or underscore and contain only letters, "
                "digits, and underscores";

        for (const char *p = text; *p; p++) {
                bool letter = (*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z') || *p == '_';

                if (!letter && (p == text || *p < '0' || *p > '9'))
                        return message;
        }
        if (text[0])
                return NULL;
        return message;
}

const char *cg_check_mach_name(const char *text)
{
        const char *star = strchr(text, '*');

        if (!star || !star[1])
                return NULL;
        return "Wildcards are only allowed as a single trailing \"*\" (e.g., \"com.example.*\" or \"*\" for all services).";
}

bool cg_domain_covered(const char *host, const struct cg_strs *allowed)
{
        struct cg_domains wanted = { .n = 0 }, entries = { .n = 0 };
        bool covered = false;

        if (cg_domains_add(&wanted, host, false, NULL) == 0)
                for (size_t i = 0; i < allowed->n && !covered; i++)
                        covered = cg_domains_add(&entries, allowed->v[i], false, NULL) == 0 &&
                                  cg_domain_covers(&entries.v[entries.n - 1], &wanted.v[0]);
        cg_domains_fini(&wanted);
        cg_domains_fini(&entries);
        return covered;
}
