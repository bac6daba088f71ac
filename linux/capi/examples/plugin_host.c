/*
 * A host and a plug-in that it does not trust.
 *
 * The plug-in is another process, which may be buggy or hostile. What it sends is taken only as a copy or as sealed
 * memory: the bytes that were checked are the bytes that are used. A plug-in that lies, breaks the protocol, dies,
 * or never answers costs the host an error and nothing else. A plug-in of the same user could also write to the
 * host's memory by ptrace: confine it by the means of your system, or start it by `Command::confined()` of the Rust
 * library.
 *
 *     cc plugin_host.c $(pkg-config --cflags --libs pageferry) -o plugin_host && ./plugin_host
 */
#define _POSIX_C_SOURCE 200809L
#include <fcntl.h>
#include <pageferry.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PIXELS = 3000000, PATIENCE_MS = 2000 };

static void must(int code, const char *what)
{
    if (code != PF_OK) {
        fprintf(stderr, "%s: %s (%s)\n", what, pf_strerror(code), pf_last_error());
        exit(1);
    }
}

static pf_config modest(void)
{
    pf_config config;
    must(pf_config_init(&config, sizeof config), "configuration");
    config.slots = 2;
    config.budget = 64 << 20;
    return config;
}

/* What runs on the other side. */
static int plugin(int from_host, int to_host, const char *behaviour)
{
    pf_config config = modest();
    pf_receiver *work;
    pf_sender *results;
    pf_loan *image;
    pf_buffer *buffer;
    pf_lent *lent;
    const void *from;
    void *to;
    size_t len, at;
    int copy = dup(to_host);
    must(pf_receiver_open_trusted(from_host, &config, &work), "plug-in, work");
    config.level = PF_LEVEL_SEALED;
    must(pf_sender_open_trusted(to_host, &config, &results), "plug-in, results");
    must(pf_recv(work, PF_RECV_READ, PF_WAIT, &image), "plug-in, an image");
    must(pf_loan_data(image, &from, &len), "plug-in, its bytes");
    if (strcmp(behaviour, "crashing") == 0) {
        abort();
    }
    if (strcmp(behaviour, "silent") == 0) {
        pause();
    }
    if (strcmp(behaviour, "hostile") == 0) {
        /* It has kept a copy of its socket, and writes to it what no library would. */
        (void)!send(copy, "what is this?", 13, MSG_NOSIGNAL);
        pause();
    }
    must(pf_sender_buffer(results, len, PF_WAIT, &buffer), "plug-in, a buffer");
    must(pf_buffer_data(buffer, &to, &len), "plug-in, its memory");
    for (at = 0; at < len; at++) {
        ((unsigned char *)to)[at] = (unsigned char)(((const unsigned char *)from)[at] + 1);
    }
    if (strcmp(behaviour, "lying") == 0) {
        ((unsigned char *)to)[len / 2] = 0;
    }
    must(pf_loan_release(image), "plug-in, giving the image back");
    must(pf_sender_loan(results, buffer, 0, PF_WAIT, &lent), "plug-in, the result");
    /* It stays until the host has what it sent. */
    must(pf_lent_wait(lent, PF_WAIT, &buffer), "plug-in, the result's way home");
    return 0;
}

static pid_t start(const char *program, const char *behaviour, int *to_plugin, int *from_plugin)
{
    int work[2], results[2];
    pid_t child;
    must(pf_channel_sockets(work), "sockets");
    must(pf_channel_sockets(results), "sockets");
    child = fork();
    if (child == 0) {
        char first[16], second[16];
        snprintf(first, sizeof first, "%d", work[1]);
        snprintf(second, sizeof second, "%d", results[0]);
        fcntl(work[1], F_SETFD, 0);
        fcntl(results[0], F_SETFD, 0);
        execl("/proc/self/exe", program, behaviour, first, second, (char *)NULL);
        _exit(127);
    }
    close(work[1]), close(results[0]);
    *to_plugin = work[0];
    *from_plugin = results[1];
    return child;
}

/* Whether the host saw what it should of a plug-in that behaves like this. */
static int with_plugin(const char *program, const char *behaviour, int expected)
{
    pf_config config = modest();
    pf_sender *work;
    pf_receiver *results;
    pf_buffer *image;
    pf_lent *lent;
    pf_loan *result;
    void *bytes;
    size_t len, at;
    int to_plugin, from_plugin, code, home = 1;
    pid_t child = start(program, behaviour, &to_plugin, &from_plugin);
    must(pf_sender_open(to_plugin, &config, &work), "host, work");
    config.level = PF_LEVEL_SEALED;
    must(pf_receiver_open(from_plugin, &config, &results), "host, results");

    must(pf_sender_buffer(work, PIXELS, PF_WAIT, &image), "host, a buffer");
    must(pf_buffer_data(image, &bytes, &len), "host, its memory");
    memset(bytes, 40, len);
    must(pf_sender_loan(work, image, 0, PATIENCE_MS, &lent), "host, an image");

    code = pf_recv(results, PF_RECV_READ, PATIENCE_MS, &result);
    if (code == PF_OK) {
        /* Checked once; it cannot change afterwards. */
        const void *made;
        int level, valid;
        must(pf_loan_data(result, &made, &len), "host, a result");
        must(pf_loan_level(result, &level), "host, its level");
        valid = len == PIXELS;
        for (at = 0; valid && at < len; at++) {
            valid = ((const unsigned char *)made)[at] == 41;
        }
        printf("%-9s %lu bytes, %s: %s\n", behaviour, (unsigned long)len,
               level == PF_LEVEL_SEALED ? "sealed" : "a copy", valid ? "valid" : "refused, for they are wrong");
        must(pf_loan_release(result), "host, giving the result back");
        code = valid ? PF_OK : -1;
    } else {
        static const char *const who[] = { "nobody",     "the plug-in", "this machine",
                                           "the budget", "the host",    "the library" };
        printf("%-9s %s; %s is to blame\n", behaviour, pf_last_error(), who[pf_blame(code)]);
    }
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    /* The plug-in is gone, so what was lent to it is home. */
    must(pf_lent_wait(lent, PF_WAIT, &image), "host, the image");
    must(pf_buffer_data(image, &bytes, &len), "host, its memory");
    for (at = 0; at < len; at++) {
        home &= ((unsigned char *)bytes)[at] == 40;
    }
    must(pf_buffer_free(image), "host, the image");
    must(pf_sender_free(work), "host, work");
    must(pf_receiver_free(results), "host, results");
    return code == expected && home;
}

int main(int argc, char **argv)
{
    int as_expected = 1;
    if (argc == 4) {
        return plugin(atoi(argv[2]), atoi(argv[3]), argv[1]);
    }
    as_expected &= with_plugin(argv[0], "honest", PF_OK);
    as_expected &= with_plugin(argv[0], "lying", -1);
    as_expected &= with_plugin(argv[0], "crashing", PF_EPEER_DEAD);
    as_expected &= with_plugin(argv[0], "silent", PF_ETIMEDOUT);
    as_expected &= with_plugin(argv[0], "hostile", PF_EPEER_BROKEN);
    printf("%lu handles are left\n", (unsigned long)pf_open_handles());
    return !as_expected || pf_open_handles() != 0;
}
