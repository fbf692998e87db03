/* A closed loop of whole frames: so many requests outstanding on each connection, for so many seconds.
 *
 *     load ADDRESS PORT CONNECTIONS DEPTH SECONDS ERROR_AT < FRAMES
 *
 * FRAMES are requests as they go over the wire, length first, one after another; connection i sends frame i modulo
 * their number, again and again. ERROR_AT is where the error code stands in an answer, counted behind its length.
 * "begin" is printed when all connections stand. When the time is over, what is outstanding is waited for, so that a
 * server's cost up to the end is that of `requests`. Then one line of JSON: requests, seconds, cpu_ns (of this process,
 * kernel included), latencies as [microseconds, count] in buckets of three digits.
 * An error code, a lost connection or half a minute of silence ends it with one line and exit code 2.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { MAX_ANSWER = 1024, CHUNK = 64 << 10, MAX_EVENTS = 256, SILENCE_S = 30, FINE = 1024, OCTAVES = 54 };

struct frame {
    uint8_t *copies; /* as many, one behind another, as may have to be sent at once */
    size_t size;
};

struct connection {
    int fd, number, waits_to_write;
    const struct frame *frame;
    size_t unsent, at;     /* bytes that are still to be written; where in the copies they begin */
    uint64_t *sent;        /* times of what is outstanding: a ring of depth */
    uint32_t oldest, owed; /* where the ring begins; how many are outstanding */
    uint32_t have;         /* bytes of an answer that has not come whole */
    uint8_t rest[MAX_ANSWER];
};

static uint64_t buckets[FINE * OCTAVES], requests, outstanding;
static uint32_t depth, error_at;
static int epoll, over;

#define fail(...) (fprintf(stderr, __VA_ARGS__), fputc('\n', stderr), exit(2))

static uint64_t clock_ns(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Buckets are 1 us wide below 2,048 us, then twice as wide at each power of two. */
static void record(uint64_t ns) {
    uint64_t us = (ns + 500) / 1000;
    int octave = us < 2 * FINE ? 0 : 53 - __builtin_clzll(us);
    buckets[(uint64_t)octave * FINE + (us >> octave)]++;
}

static uint64_t middle(uint64_t bucket) {
    uint64_t octave = bucket < 2 * FINE ? 0 : bucket / FINE - 1;
    return ((bucket - octave * FINE) << octave) + ((1u << octave) >> 1);
}

static void watch(struct connection *c, int operation, int waits_to_write) {
    struct epoll_event event = {.events = EPOLLIN | (waits_to_write ? EPOLLOUT : 0), .data.ptr = c};
    c->waits_to_write = waits_to_write;
    if (epoll_ctl(epoll, operation, c->fd, &event)) fail("epoll_ctl: %s", strerror(errno));
}

/* Write what the socket takes; the rest follows when it takes more. */
static void flush(struct connection *c) {
    while (c->unsent) {
        size_t left = c->frame->size * depth - c->at;
        ssize_t n = write(c->fd, c->frame->copies + c->at, c->unsent < left ? c->unsent : left);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno == EAGAIN) break;
        if (n < 0) fail("connection %d was lost: %s", c->number, strerror(errno));
        c->unsent -= (size_t)n;
        c->at = (c->at + (size_t)n) % c->frame->size;
    }
    if (c->waits_to_write != (c->unsent > 0)) watch(c, EPOLL_CTL_MOD, c->unsent > 0);
}

static void send_more(struct connection *c, uint32_t count, uint64_t now) {
    for (uint32_t i = 0; i < count; i++) c->sent[(c->oldest + c->owed++) % depth] = now;
    c->unsent += count * c->frame->size;
    outstanding += count;
    flush(c);
}

/* Take every whole answer; as many requests follow, while it is time. */
static void receive(struct connection *c) {
    static uint8_t buffer[MAX_ANSWER + CHUNK];
    memcpy(buffer, c->rest, c->have);
    ssize_t got = read(c->fd, buffer + c->have, CHUNK);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (got <= 0) fail("connection %d was lost: %s", c->number, got ? strerror(errno) : "closed by the server");
    uint64_t now = clock_ns(CLOCK_MONOTONIC);
    uint32_t have = c->have + (uint32_t)got, at = 0, answers = 0, size;
    for (; have - at >= 4; at += 4 + size, answers++) {
        memcpy(&size, buffer + at, 4);
        size = ntohl(size);
        if (size < error_at + 2 || size > MAX_ANSWER - 4) fail("connection %d: an answer of %u bytes", c->number, size);
        if (have - at < 4 + size) break;
        const uint8_t *code = buffer + at + 4 + error_at;
        if (code[0] || code[1]) fail("error %d", (int16_t)(code[0] << 8 | code[1]));
        if (!c->owed--) fail("connection %d: more answers than requests", c->number);
        record(now - c->sent[c->oldest]);
        c->oldest = (c->oldest + 1) % depth;
    }
    c->have = have - at;
    memcpy(c->rest, buffer + at, c->have);
    requests += answers;
    outstanding -= answers;
    if (answers && !over) send_more(c, answers, now);
}

static struct frame *read_frames(uint32_t *count) {
    struct frame *frames = NULL;
    uint32_t length;
    for (*count = 0; fread(&length, 4, 1, stdin) == 1; ++*count) {
        frames = realloc(frames, (*count + 1) * sizeof *frames);
        struct frame *f = &frames[*count];
        f->size = 4 + (size_t)ntohl(length);
        f->copies = malloc(f->size * depth);
        if (!f->copies || fread(f->copies + 4, 1, f->size - 4, stdin) != f->size - 4) fail("half a frame was given");
        memcpy(f->copies, &length, 4);
        for (uint32_t i = 1; i < depth; i++) memcpy(f->copies + i * f->size, f->copies, f->size);
    }
    if (!*count) fail("no frame was given");
    return frames;
}

static void open_one(struct connection *c, const struct sockaddr_in *address) {
    int one = 1;
    c->fd = socket(AF_INET, SOCK_STREAM, 0);
    if (c->fd < 0 || connect(c->fd, (const void *)address, sizeof *address))
        fail("connection %d could not be made: %s", c->number, strerror(errno));
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    fcntl(c->fd, F_SETFL, O_NONBLOCK);
    c->sent = calloc(depth, sizeof *c->sent);
    watch(c, EPOLL_CTL_ADD, 0);
}

/* Until the time is over and nothing is outstanding. Returns when that was. */
static uint64_t run(struct connection *all, uint32_t count, uint64_t now, uint64_t end) {
    for (uint32_t i = 0; i < count; i++) send_more(&all[i], depth, now);
    for (uint64_t heard = now; outstanding;) {
        struct epoll_event events[MAX_EVENTS];
        int n = epoll_wait(epoll, events, MAX_EVENTS, 1000);
        now = clock_ns(CLOCK_MONOTONIC);
        over = now >= end;
        if (n > 0) heard = now;
        if (now - heard > SILENCE_S * 1000000000ull) fail("no answer within %d s", SILENCE_S);
        for (int i = 0; i < n; i++) {
            if (events[i].events & EPOLLOUT) flush(events[i].data.ptr);
            if (events[i].events & ~(uint32_t)EPOLLOUT) receive(events[i].data.ptr);
        }
    }
    return now;
}

int main(int argc, char **argv) {
    struct sockaddr_in address = {.sin_family = AF_INET};
    if (argc != 7 || inet_pton(AF_INET, argv[1], &address.sin_addr) != 1) return 1;
    address.sin_port = htons((uint16_t)atoi(argv[2]));
    uint32_t count = (uint32_t)atoi(argv[3]), kinds;
    depth = (uint32_t)atoi(argv[4]), error_at = (uint32_t)atoi(argv[6]);
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    signal(SIGPIPE, SIG_IGN);
    struct frame *frames = read_frames(&kinds);
    struct connection *all = calloc(count, sizeof *all);
    epoll = epoll_create1(0);
    for (uint32_t i = 0; i < count; i++) {
        all[i].number = (int)i, all[i].frame = &frames[i % kinds];
        open_one(&all[i], &address);
    }
    puts("begin");
    fflush(stdout);
    uint64_t cpu = clock_ns(CLOCK_PROCESS_CPUTIME_ID), began = clock_ns(CLOCK_MONOTONIC);
    uint64_t end = run(all, count, began, began + (uint64_t)(atof(argv[5]) * 1e9));
    cpu = clock_ns(CLOCK_PROCESS_CPUTIME_ID) - cpu;
    double seconds = (double)(end - began) / 1e9;
    printf("{\"requests\": %lu, \"seconds\": %.6f, \"cpu_ns\": %lu, \"latencies\": [", requests, seconds, cpu);
    const char *comma = "";
    for (uint64_t i = 0; i < FINE * OCTAVES; i++)
        if (buckets[i]) printf("%s[%lu, %lu]", comma, middle(i), buckets[i]), comma = ", ";
    puts("]}");
}
