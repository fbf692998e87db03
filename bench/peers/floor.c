/* The least a durable broker can do: receive length-prefixed frames, append them to a file, sync once a turn, answer.
 *
 * No parsing, no CRC, no state: what it costs is what the machine asks of anybody. It listens on a free loopback port,
 * prints it, and ends when its standard input closes.
 *
 *     floor FILE REPLY_HEX [sync]
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
#include <sys/socket.h>
#include <unistd.h>

enum { MAX_FRAME = 4 << 20, MAX_EVENTS = 256 };

struct connection {
    int fd;
    uint32_t have;    /* bytes in buffer */
    uint32_t answers; /* owed since the last turn */
    uint8_t buffer[MAX_FRAME];
};

static uint8_t reply[512];
static size_t reply_size;

static void die(const char *what) {
    perror(what);
    exit(1);
}

static void write_all(int fd, const uint8_t *bytes, size_t size) {
    while (size) {
        ssize_t n = write(fd, bytes, size);
        if (n < 0 && (errno == EAGAIN || errno == EINTR)) continue;
        if (n < 0) die("write");
        bytes += n;
        size -= (size_t)n;
    }
}

/* Pay what is owed. A client that has gone is owed nothing: its socket says so at the next read. */
static void answer(struct connection *c) {
    for (; c->answers; c->answers--)
        if (write(c->fd, reply, reply_size) < 0 && errno != EPIPE && errno != ECONNRESET) die("answer");
}

/* Take every whole frame out of the buffer. Returns how many, each appended to the file. */
static uint32_t append_frames(struct connection *c, int file) {
    uint32_t at = 0, frames = 0;
    while (c->have - at >= 4) {
        uint32_t size;
        memcpy(&size, c->buffer + at, 4);
        size = ntohl(size);
        if (size > MAX_FRAME - 4) exit(2);
        if (c->have - at < 4 + size) break;
        write_all(file, c->buffer + at + 4, size);
        at += 4 + size;
        frames++;
    }
    memmove(c->buffer, c->buffer + at, c->have - at);
    c->have -= at;
    return frames;
}

static int listen_on_loopback(void) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0 || bind(fd, (void *)&address, sizeof address) || listen(fd, 1024)) die("listen");
    getsockname(fd, (void *)&address, &length);
    printf("%d\n", ntohs(address.sin_port));
    fflush(stdout);
    return fd;
}

static void watch(int epoll, int fd, void *what) {
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = what};
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event)) die("epoll_ctl");
}

static void accept_one(int epoll, int listener) {
    int one = 1, fd = accept(listener, NULL, NULL);
    if (fd < 0) die("accept");
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    struct connection *c = calloc(1, sizeof *c);
    if (!c) die("calloc");
    c->fd = fd;
    watch(epoll, fd, c);
}

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    for (const char *hex = argv[2]; hex[0] && hex[1] && reply_size < sizeof reply; hex += 2)
        sscanf(hex, "%2hhx", &reply[reply_size++]);
    signal(SIGPIPE, SIG_IGN);
    int sync = argc > 3, listener = listen_on_loopback(), epoll = epoll_create1(0);
    int file = open(argv[1], O_WRONLY | O_CREAT | O_APPEND, 0600);
    if (file < 0) die(argv[1]);
    static int is_listener, is_input;
    watch(epoll, listener, &is_listener);
    watch(epoll, 0, &is_input);
    for (;;) {
        struct epoll_event events[MAX_EVENTS];
        int n = epoll_wait(epoll, events, MAX_EVENTS, -1), appended = 0;
        if (n < 0 && errno != EINTR) die("epoll_wait");
        for (int i = 0; i < n; i++) {
            if (events[i].data.ptr == &is_input) return 0;
            if (events[i].data.ptr == &is_listener) {
                accept_one(epoll, listener);
                continue;
            }
            struct connection *c = events[i].data.ptr;
            ssize_t got = read(c->fd, c->buffer + c->have, MAX_FRAME - c->have);
            if (got <= 0) {
                epoll_ctl(epoll, EPOLL_CTL_DEL, c->fd, NULL);
                close(c->fd);
                c->answers = 0;
                continue;
            }
            c->have += (uint32_t)got;
            c->answers = append_frames(c, file);
            appended += (int)c->answers;
        }
        if (appended && sync && fdatasync(file)) die("fdatasync");
        for (int i = 0; i < n; i++) {
            struct connection *c = events[i].data.ptr;
            if (events[i].data.ptr == &is_input || events[i].data.ptr == &is_listener) continue;
            answer(c);
        }
    }
}
