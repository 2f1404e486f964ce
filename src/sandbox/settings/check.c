/* Syntax checks of single texts in a settings file. */
#include "sandbox/names/names.h"
#include "sandbox/settings/read.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <string.h>
#include <strings.h>

#include "sandbox/sandbox.h"

#define DOMAIN_MESSAGE \
        "Invalid domain pattern. Must be a valid domain (e.g., \"example.com\"), a wildcard (e.g., \"*.example.com\"), or a " \
        "bracketed IPv6 literal (e.g., \"[::1]\", \"[2001:db8::1]:443\"). Overly broad patterns like \"*.com\" or \"*\" are not " \
        "allowed for security reasons. Names with other letters than ASCII's are written as clients send them: xn--..."
#define DOMAIN_MAX 512

/* The host of "host", "host:port", "[address]", "[address]:port" in @buf; false: none of these. */
static bool split_port(const char *text, char buf[DOMAIN_MAX])
{
        const char *end = text + strlen(text), *port = NULL, *close;
        size_t n;

        if (text[0] == '[') {
                close = strchr(text, ']');
                if (!close || (close[1] && close[1] != ':'))
                        return false;
                port = close[1] ? close + 2 : NULL;
                text++;
                end = close;
        } else if ((close = strchr(text, ':'))) {
                if (strchr(close + 1, ':'))
                        return false; /* an address without brackets: where its port starts nobody knows */
                port = close + 1;
                end = close;
        }
        if (port) {
                size_t digits = strspn(port, "0123456789");

                if (port[0] < '1' || digits > 5 || port[digits] || strtol(port, NULL, 10) > 65535)
                        return false;
        }
        n = (size_t)(end - text);
        if (n >= DOMAIN_MAX)
                return false;
        memcpy(buf, text, n);
        buf[n] = '\0';
        return true;
}

static bool is_address6(const char *host)
{
        struct in6_addr a;
        char copy[DOMAIN_MAX];
        const char *zone = strchr(host, '%');
        size_t n = zone ? (size_t)(zone - host) : strlen(host);

        if (n >= sizeof(copy))
                return false;
        memcpy(copy, host, n);
        copy[n] = '\0';
        return inet_pton(AF_INET6, copy, &a) == 1;
}

static bool is_pattern(const char *host, bool bracketed)
{
        size_t n;

        if (bracketed)
                return is_address6(host);
        if (strcmp(host, "localhost") == 0)
                return true;
        host += strncmp(host, "*.", 2) == 0 ? 2 : 0;
        /*
         * No name has these characters, so the entry would never match. Nor has one letters beyond
         * ASCII: clients send such names as xn--...
         */
        for (const char *p = host; *p; p++)
                if ((unsigned char)*p <= ' ' || (unsigned char)*p >= 0x7f || strchr("/:%@\\?#", *p))
                        return false;
        n = strlen(host);
        return n && strchr(host, '.') && host[0] != '.' && host[n - 1] != '.' && !strstr(host, "..") &&
               !strchr(host, '*');
}

const char *cg_check_domain(const char *text)
{
        char host[DOMAIN_MAX];

        if (is_address6(text)) /* no port can follow here, so brackets are not needed */
                return NULL;
        if (!split_port(text, host) || !is_pattern(host, text[0] == '['))
                return DOMAIN_MESSAGE;
        return text[0] != '[' && strchr(text, ':') ? DOMAIN_MESSAGE : NULL;
}

const char *cg_check_allowed_domain(const char *text)
{
        char host[DOMAIN_MAX];

        if (split_port(text, host) && is_pattern(host, text[0] == '['))
                return NULL;
        return DOMAIN_MESSAGE ". An optional \":port\" suffix (1-65535) restricts the entry to that port.";
}

const char *cg_check_denied_domain(const char *text)
{
        char host[DOMAIN_MAX];

        if (split_port(text, host) &&
            ((text[0] != '[' && strcmp(host, "*") == 0) || is_pattern(host, text[0] == '[')))
                return NULL;
        return DOMAIN_MESSAGE
                ". In deniedDomains a bare \"*\" (deny-all) is also accepted, and an optional \":port\" suffix "
                "(1-65535) restricts the entry to that port.";
}

const char *cg_check_address_range(const char *text)
{
        static const char message[] =
                "Invalid IP address or CIDR range. Use an IPv4/IPv6 literal or CIDR, e.g. \"10.0.0.0/8\", "
                "\"192.168.1.10\", \"fc00::/7\" (IPv6 unbracketed).";
        const char *slash = strchr(text, '/');
        size_t n = slash ? (size_t)(slash - text) : strlen(text);
        struct in_addr a4;
        struct in6_addr a6;
        char host[64];
        long max, prefix;

        if (n >= sizeof(host))
                return message;
        memcpy(host, text, n);
        host[n] = '\0';
        if (inet_pton(AF_INET, host, &a4) == 1)
                max = 32;
        else if (inet_pton(AF_INET6, host, &a6) == 1)
                max = 128;
        else
                return message;
        if (!slash)
                return NULL;
        n = strspn(slash + 1, "0123456789");
        if (n < 1 || n > 3 || slash[1 + n])
                return message;
        prefix = strtol(slash + 1, NULL, 10);
        if (prefix > max || (max == 128 && IN6_IS_ADDR_V4MAPPED(&a6) && prefix < 96))
                return message;
        return NULL;
}

const char *cg_check_absolute(const char *text)
{
        if (!text[0])
                return "Path cannot be empty";
        return text[0] == '/' ? NULL : "path must be absolute";
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
        return text[0] ? NULL : message;
}

const char *cg_check_mach_name(const char *text)
{
        const char *star = strchr(text, '*');

        if (!star || !star[1])
                return NULL;
        return "Wildcards are only allowed as a single trailing \"*\" (e.g., \"com.example.*\" or \"*\" for all services).";
}

static bool covers(const char *allowed, const char *host)
{
        size_t na, nh = strlen(host);

        if (strncmp(allowed, "*.", 2) != 0)
                return strncmp(host, "*.", 2) != 0 && strcasecmp(allowed, host) == 0;
        allowed++; /* ".example.com" */
        na = strlen(allowed);
        if (strncmp(host, "*.", 2) == 0 && strcasecmp(host + 1, allowed) == 0)
                return true;
        return nh > na && strcasecmp(host + nh - na, allowed) == 0;
}

bool cg_domain_covered(const char *host, const struct cg_strs *allowed)
{
        char wanted[DOMAIN_MAX], entry[DOMAIN_MAX];

        if (!split_port(host, wanted))
                return false; /* an address without brackets among them: write it with */
        for (size_t i = 0; i < allowed->n; i++)
                if (split_port(allowed->v[i], entry) && covers(entry, wanted))
                        return true;
        return false;
}
