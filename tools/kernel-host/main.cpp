// Runs kernels on the host for tests, so that sanitizers can watch them. Requests come one after another on standard
// input.
//
// All numbers are little-endian. A request is
//   u32 length of the kernel's name, the name (or several separated by commas, launched one after the other), u32
//   lanes,
//   u32 blocks,
//   u32 number of buffers, and for each: u64 length, u32 flags (1: contents follow, 2: send it back), contents,
//   u32 length of the arguments, the arguments,
//   u32 number of pointers in the arguments, and for each: u32 offset in the arguments, u32 buffer, u64 offset in the
//   buffer.
// The answer is u32 status (0: done; 1: unknown kernel; 2: the arguments have another length), then the buffers to send
// back.
#include "host/table.hpp"

#include "entries.inc"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <unistd.h>

namespace {

// A launch that takes longer than this counts as hung: SIGALRM ends the process, and the test that asked fails. The limit
// guards against endless loops only. It is wall time, so it has to exceed by far what a busy machine needs under the thread
// sanitizer.
constexpr unsigned HANG_LIMIT_SECONDS = 600;

enum Flags : u32 { FILLED = 1, WANTED = 2 };

// Memory of exactly the requested length, so that the address sanitizer sees the first byte beyond it.
struct Buffer {
    std::unique_ptr<u8, decltype(&std::free)> data{nullptr, &std::free};
    u64 len = 0;
    u32 flags = 0;
};

[[noreturn]] void fail(const char* why) {
    std::fprintf(stderr, "kernel-host: %s\n", why);
    std::exit(2);
}

void read_bytes(void* to, u64 len) {
    if (len != 0 && std::fread(to, 1, len, stdin) != len) fail("the request ends early");
}

template <class T> T read_number() {
    T value;
    read_bytes(&value, sizeof value);
    return value;
}

void write_bytes(const void* from, u64 len) {
    if (len != 0 && std::fwrite(from, 1, len, stdout) != len) fail("the answer cannot be written");
}

void serve(u32 name_len) {
    std::string name(name_len, '\0');
    read_bytes(&name[0], name_len);
    const u32 lanes = read_number<u32>(), blocks = read_number<u32>();
    std::vector<Buffer> buffers(read_number<u32>());
    for (Buffer& buffer : buffers) {
        buffer.len = read_number<u64>();
        buffer.flags = read_number<u32>();
        buffer.data.reset(static_cast<u8*>(std::malloc(buffer.len)));
        if (buffer.len != 0 && !buffer.data) fail("out of memory");
        if ((buffer.flags & FILLED) != 0) read_bytes(buffer.data.get(), buffer.len);
        else if (buffer.len != 0) std::memset(buffer.data.get(), 0xcd, buffer.len);
    }
    std::vector<u8> args(read_number<u32>());
    read_bytes(args.data(), args.size());
    for (u32 patches = read_number<u32>(); patches > 0; patches--) {
        const u32 offset = read_number<u32>(), which = read_number<u32>();
        const u64 within = read_number<u64>();
        if (which >= buffers.size() || u64(offset) + sizeof(u8*) > args.size()) fail("a pointer leads out of its buffer or of the arguments");
        const u8* at = buffers[which].data.get() + within;
        std::memcpy(args.data() + offset, &at, sizeof at);
    }

    u32 status = 0;
    for (size_t start = 0; start <= name.size() && status == 0;) {
        const size_t end = std::min(name.find(',', start), name.size());
        const auto kernel = host_kernels().find(name.substr(start, end - start));
        status = kernel == host_kernels().end() ? 1 : kernel->second.args_size != args.size() ? 2 : 0;
        if (status == 0) {
            alarm(HANG_LIMIT_SECONDS);
            kernel->second.launch(blocks, lanes, args.data());
            alarm(0);
        }
        start = end + 1;
    }
    write_bytes(&status, sizeof status);
    for (const Buffer& buffer : buffers)
        if (status == 0 && (buffer.flags & WANTED) != 0) write_bytes(buffer.data.get(), buffer.len);
    std::fflush(stdout);
}

}  // namespace

int main() {
    u32 name_len;
    while (std::fread(&name_len, 1, sizeof name_len, stdin) == sizeof name_len) serve(name_len);
}
