/*
 * What the tests share: a check that ends the test, and what a process has that must not grow.
 *
 * A check that fails prints where, what, and what the library says of it, and aborts.
 */
#ifndef CHECK_H
#define CHECK_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <pageferry.h>

#define CHECK(what) check((what) != 0, #what, __FILE__, __LINE__)
/* A call answers this code. */
#define ANSWERS(code, call) answers((code), (call), #call, __FILE__, __LINE__)
#define OK(call) ANSWERS(PF_OK, call)

/* More than any step takes on a busy host. */
#define LONG_MS 60000

static inline void check(int holds, const char *what, const char *file, int line)
{
    if (!holds) {
        fprintf(stderr, "%s:%d: %s does not hold (errno %d; pageferry: %s)\n", file, line, what, errno,
                pf_last_error());
        abort();
    }
}

static inline void answers(int expected, int code, const char *call, const char *file, int line)
{
    if (code != expected) {
        fprintf(stderr, "%s:%d: %s answers %d (%s: %s); expected %d (%s)\n", file, line, call, code, pf_strerror(code),
                code == PF_OK ? "" : pf_last_error(), expected, pf_strerror(expected));
        abort();
    }
}

/* What a process has: descriptors, mappings of shared memory, handles. */
struct traces {
    size_t descriptors;
    size_t mappings;
    size_t handles;
};

static inline struct traces traces_now(void)
{
    struct traces now = { 0, 0, 0 };
    DIR *directory = opendir("/proc/self/fd");
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[4096];
    CHECK(directory != NULL && maps != NULL);
    while (readdir(directory) != NULL) {
        now.descriptors++;
    }
    while (fgets(line, sizeof line, maps) != NULL) {
        now.mappings += strstr(line, "memfd:pageferry") != NULL;
    }
    closedir(directory);
    fclose(maps);
    now.handles = pf_open_handles();
    return now;
}

/* How many threads there are. */
static inline size_t threads_now(void)
{
    size_t threads = 0;
    struct dirent *entry;
    DIR *directory = opendir("/proc/self/task");
    CHECK(directory != NULL);
    while ((entry = readdir(directory)) != NULL) {
        threads += entry->d_name[0] != '.';
    }
    closedir(directory);
    return threads;
}

/* Waits until threads of the library that an earlier test has left have ended, which is soon. */
static inline void alone(void)
{
    const struct timespec soon = { 0, 10 * 1000 * 1000 };
    int tries;
    for (tries = 0; tries < 100 && threads_now() > 1; tries++) {
        nanosleep(&soon, NULL);
    }
}

/* What there is before a test. A thread that an earlier one has left closes what it holds: while it is there, what is
 * counted may become less. */
static inline struct traces traces_before(void)
{
    alone();
    return traces_now();
}

/* Forks, where no other thread is in an allocator: a sanitizer's does not hold its own locks over a fork. */
static inline pid_t forks_alone(void)
{
    pid_t child;
    alone();
    child = fork();
    CHECK(child >= 0);
    return child;
}

/* Nothing is left of what was done since. What a peer has sent is closed by another thread, soon. */
static inline void nothing_is_left_since(struct traces before)
{
    const struct timespec soon = { 0, 10 * 1000 * 1000 };
    int tries;
    for (tries = 0; tries < 1000; tries++) {
        struct traces now = traces_now();
        if (now.descriptors == before.descriptors && now.mappings == before.mappings && now.handles == before.handles) {
            return;
        }
        nanosleep(&soon, NULL);
    }
    {
        struct traces now = traces_now();
        fprintf(stderr, "descriptors %zu before, %zu now; mappings %zu, %zu; handles %zu, %zu\n", before.descriptors,
                now.descriptors, before.mappings, now.mappings, before.handles, now.handles);
        CHECK(!"something is left");
    }
}

/* Two slots of 2 MB, which is enough for these tests and soon made. */
static inline pf_config small_config(void)
{
    pf_config config;
    OK(pf_config_init(&config, sizeof config));
    config.slots = 4;
    config.slot_bytes = 2 << 20;
    config.budget = 64 << 20;
    return config;
}

/* What the library makes once in a process is there from now on. */
static inline void warm_up(void)
{
    pf_config config = small_config();
    pf_sender *tx;
    pf_receiver *rx;
    /* What is not printed yet would be printed by children, too. */
    setvbuf(stdout, NULL, _IOLBF, 0);
    OK(pf_channel_pair(&config, &tx, &rx));
    OK(pf_sender_free(tx));
    OK(pf_receiver_free(rx));
}

/* Waits for a child, which must end well. */
static inline void ends_well(pid_t child)
{
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* A buffer of so many bytes, all of them this one. */
static inline pf_buffer *filled(pf_sender *tx, size_t len, int byte)
{
    pf_buffer *buffer;
    void *data;
    size_t found;
    OK(pf_sender_buffer(tx, len, LONG_MS, &buffer));
    OK(pf_buffer_data(buffer, &data, &found));
    CHECK(found == len);
    memset(data, byte, len);
    return buffer;
}

/* All bytes of it are this one. */
static inline int all_are(const void *data, size_t len, int byte)
{
    const unsigned char *bytes = (const unsigned char *)data;
    size_t at;
    for (at = 0; at < len; at++) {
        if (bytes[at] != (unsigned char)byte) {
            return 0;
        }
    }
    return 1;
}

#endif
