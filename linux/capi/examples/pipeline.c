/*
 * Camera, filter, display: three processes, and frames that go from each to the next without a copy.
 *
 * The camera donates a frame: the filter alone has it then, and works on it where it lies. What the filter has made
 * it lends to the display, which reads it where it is. The three are one program, so they trust each other.
 *
 *     cc pipeline.c $(pkg-config --cflags --libs pageferry) -o pipeline && ./pipeline 300
 */
#define _POSIX_C_SOURCE 200809L
#include <pageferry.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { WIDTH = 1920, HEIGHT = 1080, FRAME = WIDTH * HEIGHT, COLUMNS = 48, ROWS = 12 };

static void must(int code, const char *what)
{
    if (code != PF_OK) {
        fprintf(stderr, "%s: %s (%s)\n", what, pf_strerror(code), pf_last_error());
        exit(1);
    }
}

static pf_config frames_of_four(void)
{
    pf_config config;
    must(pf_config_init(&config, sizeof config), "configuration");
    config.slots = 4;
    config.slot_bytes = FRAME;
    return config;
}

/* A bright disk on a dark ground, which moves from frame to frame. */
static void draw(unsigned char *frame, unsigned number)
{
    const int x0 = (int)(number * 40 % WIDTH), y0 = HEIGHT / 2, radius = HEIGHT / 4;
    int x, y;
    memset(frame, 30, FRAME);
    for (y = y0 - radius; y < y0 + radius; y++) {
        for (x = x0 - radius; x < x0 + radius; x++) {
            if (x >= 0 && x < WIDTH && (x - x0) * (x - x0) + (y - y0) * (y - y0) < radius * radius) {
                frame[y * WIDTH + x] = 220;
            }
        }
    }
}

static void camera(int to_filter, unsigned frames)
{
    pf_config config = frames_of_four();
    pf_sender *tx;
    unsigned number;
    must(pf_sender_open_trusted(to_filter, &config, &tx), "camera");
    for (number = 0; number < frames; number++) {
        pf_buffer *buffer;
        void *frame;
        size_t len;
        must(pf_sender_buffer(tx, FRAME, PF_WAIT, &buffer), "a buffer for the camera");
        must(pf_buffer_data(buffer, &frame, &len), "its memory");
        draw((unsigned char *)frame, number);
        must(pf_sender_donate(tx, buffer, number), "donating a frame");
    }
    must(pf_sender_free(tx), "camera");
}

/* Turns each frame into its negative. */
static void filter(int from_camera, int to_display)
{
    pf_config config = frames_of_four();
    pf_receiver *rx;
    pf_sender *tx;
    pf_loan *loan;
    int code;
    must(pf_receiver_open_trusted(from_camera, &config, &rx), "filter, from the camera");
    must(pf_sender_open_trusted(to_display, &config, &tx), "filter, to the display");
    while ((code = pf_recv(rx, PF_RECV_READ, PF_WAIT, &loan)) == PF_OK) {
        pf_buffer *buffer;
        pf_lent *lent;
        const void *from;
        void *to;
        size_t len, at;
        uint64_t number;
        must(pf_loan_data(loan, &from, &len), "a frame");
        must(pf_loan_tag(loan, &number), "its number");
        must(pf_sender_buffer(tx, len, PF_WAIT, &buffer), "a buffer for the filter");
        must(pf_buffer_data(buffer, &to, &len), "its memory");
        for (at = 0; at < len; at++) {
            ((unsigned char *)to)[at] = (unsigned char)~((const unsigned char *)from)[at];
        }
        must(pf_loan_release(loan), "giving the frame back");
        must(pf_sender_loan(tx, buffer, number, PF_WAIT, &lent), "lending the negative");
        /* Its memory comes home by itself. */
        must(pf_lent_free(lent), "the token");
    }
    if (code != PF_EPEER_DEAD) {
        must(code, "filter");
    }
    must(pf_receiver_free(rx), "filter");
    must(pf_sender_free(tx), "filter");
}

static void show(const unsigned char *frame, uint64_t number)
{
    static const char shades[] = " .:-=+*#%@";
    int row, column;
    printf("frame %lu, as the filter has made it:\n", (unsigned long)number);
    for (row = 0; row < ROWS; row++) {
        char line[COLUMNS + 1];
        for (column = 0; column < COLUMNS; column++) {
            int pixel = frame[(row * HEIGHT / ROWS + HEIGHT / ROWS / 2) * WIDTH + column * WIDTH / COLUMNS];
            line[column] = shades[pixel * 9 / 255];
        }
        line[COLUMNS] = 0;
        printf("    |%s|\n", line);
    }
}

static void display(int from_filter, unsigned frames)
{
    pf_config config = frames_of_four();
    pf_receiver *rx;
    pf_loan *loan;
    struct timespec began, ended;
    unsigned shown = 0, torn = 0;
    int code;
    must(pf_receiver_open_trusted(from_filter, &config, &rx), "display");
    clock_gettime(CLOCK_MONOTONIC, &began);
    while ((code = pf_recv(rx, PF_RECV_READ, PF_WAIT, &loan)) == PF_OK) {
        const void *frame;
        size_t len;
        uint64_t number;
        must(pf_loan_data(loan, &frame, &len), "a frame");
        must(pf_loan_tag(loan, &number), "its number");
        if (shown == frames / 3) {
            show((const unsigned char *)frame, number);
        }
        torn += number != shown++ || len != FRAME || ((const unsigned char *)frame)[0] != (unsigned char)~30;
        must(pf_loan_release(loan), "giving it back");
    }
    if (code != PF_EPEER_DEAD) {
        must(code, "display");
    }
    must(pf_receiver_free(rx), "display");
    clock_gettime(CLOCK_MONOTONIC, &ended);
    printf("%u frames of %d x %d through three processes, %.0f a second, %u out of order or torn\n", shown, WIDTH,
           HEIGHT, shown / ((double)(ended.tv_sec - began.tv_sec) + (double)(ended.tv_nsec - began.tv_nsec) / 1e9),
           torn);
    if (shown != frames || torn != 0) {
        exit(1);
    }
}

int main(int argc, char **argv)
{
    unsigned frames = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : 60;
    int first[2], second[2], status, failed = 0;
    must(pf_channel_sockets(first), "sockets");
    must(pf_channel_sockets(second), "sockets");
    /* Each process keeps its own ends: a peer is seen to be gone when nobody has its end any more. */
    if (fork() == 0) {
        close(first[1]), close(second[0]), close(second[1]);
        camera(first[0], frames);
        _exit(0);
    }
    if (fork() == 0) {
        close(first[0]), close(second[1]);
        filter(first[1], second[0]);
        _exit(0);
    }
    close(first[0]), close(first[1]), close(second[0]);
    display(second[1], frames);
    while (wait(&status) > 0) {
        failed |= status;
    }
    return failed != 0;
}
