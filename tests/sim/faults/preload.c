/* Stands between fedqd and the C library: the time of day, writes to its database, and the address of a name,
   as told by files in a folder. FEDQ_FAULTS names the folder, FEDQ_FAULTS_DATABASE the database. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

static int told(const char *name, char *text, size_t size) {
    const char *folder = getenv("FEDQ_FAULTS");
    char path[4096];
    if (!folder) return 0;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return 0;
    ssize_t length = read(file, text, size - 1);
    close(file);
    if (length <= 0) return 0;
    text[length] = 0;
    return 1;
}

/* The database and the files beside it. */
static int is_database(int file) {
    const char *database = getenv("FEDQ_FAULTS_DATABASE");
    char link[64], path[4096];
    if (!database) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length <= 0) return 0;
    path[length] = 0;
    return strncmp(path, database, strlen(database)) == 0;
}

static int fails(int file) {
    char text[16];
    if (!is_database(file) || !told("disk", text, sizeof text)) return 0;
    errno = strcmp(text, "full") == 0 ? ENOSPC : EIO;
    return 1;
}

int clock_gettime(clockid_t clock, struct timespec *at) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int result = real(clock, at);
    char text[32];
    if (result == 0 && clock == CLOCK_REALTIME && told("clock", text, sizeof text)) at->tv_sec += atoll(text);
    return result;
}

#define WRITES(name, offset)                                                               \
    ssize_t name(int file, const void *bytes, size_t size, offset at) {                    \
        static ssize_t (*real)(int, const void *, size_t, offset);                         \
        if (!real) real = (ssize_t(*)(int, const void *, size_t, offset))dlsym(RTLD_NEXT, #name); \
        return fails(file) ? -1 : real(file, bytes, size, at);                             \
    }
WRITES(pwrite, off_t)
WRITES(pwrite64, off64_t)

ssize_t write(int file, const void *bytes, size_t size) {
    static ssize_t (*real)(int, const void *, size_t);
    if (!real) real = (ssize_t(*)(int, const void *, size_t))dlsym(RTLD_NEXT, "write");
    return fails(file) ? -1 : real(file, bytes, size);
}

static void count(int file) {
    static long syncs;
    char text[32];
    if (!is_database(file) || !told("kill", text, sizeof text)) return;
    long at = atol(text);
    if (0 < at && ++syncs == at) kill(getpid(), SIGKILL);
}

#define SYNCS(name)                                                   \
    int name(int file) {                                              \
        static int (*real)(int);                                      \
        if (!real) real = (int (*)(int))dlsym(RTLD_NEXT, #name);      \
        if (fails(file)) return -1;                                   \
        count(file);                                                  \
        return real(file);                                            \
    }
SYNCS(fsync)
SYNCS(fdatasync)

/* "name address": that name has this address. */
int getaddrinfo(const char *name, const char *service, const struct addrinfo *hints, struct addrinfo **found) {
    static int (*real)(const char *, const char *, const struct addrinfo *, struct addrinfo **);
    if (!real)
        real = (int (*)(const char *, const char *, const struct addrinfo *, struct addrinfo **))dlsym(
            RTLD_NEXT, "getaddrinfo");
    char text[512], *address;
    if (name && told("address", text, sizeof text) && (address = strchr(text, ' '))) {
        *address++ = 0;
        if (strcmp(name, text) == 0) name = address;
    }
    return real(name, service, hints, found);
}

/* Who is called, a line each. */
int connect(int file, const struct sockaddr *to, socklen_t size) {
    static int (*real)(int, const struct sockaddr *, socklen_t);
    if (!real) real = (int (*)(int, const struct sockaddr *, socklen_t))dlsym(RTLD_NEXT, "connect");
    const char *folder = getenv("FEDQ_FAULTS");
    if (folder && to->sa_family == AF_INET) {
        char path[4096], line[64];
        inet_ntop(AF_INET, &((const struct sockaddr_in *)to)->sin_addr, line, sizeof line - 1);
        strcat(line, "\n");
        snprintf(path, sizeof path, "%s/dialled", folder);
        int list = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
        if (0 <= list && write(list, line, strlen(line)) < 0) perror(path);
        if (0 <= list) close(list);
    }
    return real(file, to, size);
}
