/* Watches the system calls of a process that change files below one folder; for Linux on x86-64.
 *
 * Preloaded, it has the kernel stop every such call with SIGSYS (a seccomp filter), whether libc or the program itself
 * makes it; the handler then makes the call in its place. The filter knows the handler's own calls by the address they
 * come from.
 *
 * CALLS_FOLDER  the folder; calls on other files pass unseen
 * CALLS_LOG     file that gets a record of each call that succeeded, with the bytes written, in order
 * CALLS_FAIL    "N WHAT": the N-th call, counted from 0, fails with the error number WHAT; WHAT may be SHORT (half of
 *               the bytes are written, other calls fail with EINTR) or KILL; "N+ WHAT": and every call after it
 * CALLS_COUNT   file that gets, on exit, the number of calls seen and the name of the one that failed
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <ucontext.h>
#include <unistd.h>

#ifndef __x86_64__
#error "only x86-64 is known here"
#endif

/* The one place from which the handler calls the kernel. */
long calls_raw(long number, long a, long b, long c, long d, long e, long f);
extern char calls_after[];
__asm__(".globl calls_raw\n.globl calls_after\ncalls_raw:\n"
        "mov %rdi,%rax\nmov %rsi,%rdi\nmov %rdx,%rsi\nmov %rcx,%rdx\nmov %r8,%r10\nmov %r9,%r8\nmov 8(%rsp),%r9\n"
        "syscall\ncalls_after:\nret\n");

static const int WATCHED[] = {SYS_open,      SYS_openat,    SYS_creat,     SYS_write,    SYS_pwrite64, SYS_writev,
                              SYS_pwritev,   SYS_pwritev2,  SYS_ftruncate, SYS_truncate, SYS_fallocate, SYS_fsync,
                              SYS_fdatasync, SYS_rename,    SYS_renameat,  SYS_renameat2, SYS_unlink,  SYS_unlinkat,
                              SYS_link,      SYS_linkat,    SYS_symlink,   SYS_symlinkat, SYS_mkdir,   SYS_mkdirat,
                              SYS_rmdir,     SYS_sendfile,  SYS_copy_file_range, SYS_splice, SYS_close};
#define COUNT (int)(sizeof WATCHED / sizeof *WATCHED)

static char folder[PATH_MAX];
static size_t folder_len;
static int log_file = -1, count_file = -1;
static long seen, fail_at = -1, fail_on, lock;
static int fail_kind; /* an error number, or one of these */
enum { SHORT = -1, KILL = -2 };

static long raw(long number, long a, long b, long c, long d, long e, long f) {
  return calls_raw(number, a, b, c, d, e, f);
}
static long raw3(long number, long a, long b, long c) { return raw(number, a, b, c, 0, 0, 0); }

static int inside(const char *path) {
  return strncmp(path, folder, folder_len) == 0 && (path[folder_len] == '/' || path[folder_len] == 0);
}

/* Path of an open file; 0 unless it is inside the folder. */
static int path_of(int file, char *path) {
  char link[64];
  snprintf(link, sizeof link, "/proc/self/fd/%d", file);
  long len = raw3(SYS_readlink, (long)link, (long)path, PATH_MAX - 1);
  path[len < 0 ? 0 : len] = 0;
  return len > 0 && inside(path);
}

static int path_at(int at, const char *name, char *path) {
  if (!name) return 0;
  char base[PATH_MAX] = "";
  if (*name != '/') {
    if (at == AT_FDCWD) {
      if (raw3(SYS_getcwd, (long)base, sizeof base, 0) < 0) return 0;
    } else {
      char link[64];
      snprintf(link, sizeof link, "/proc/self/fd/%d", at);
      long len = raw3(SYS_readlink, (long)link, (long)base, sizeof base - 1);
      if (len < 0) return 0;
      base[len] = 0;
    }
    while (name[0] == '.' && name[1] == '/') name += 2;
    if (snprintf(path, PATH_MAX, "%s/%s", base, name) >= PATH_MAX) return 0;
  } else {
    snprintf(path, PATH_MAX, "%s", name);
  }
  return inside(path);
}

static unsigned long number_of(int file) {
  struct stat found;
  return raw(SYS_fstat, file, (long)&found, 0, 0, 0, 0) < 0 ? 0 : found.st_ino;
}

static void put(int file, const void *bytes, size_t len) {
  const char *next = bytes;
  while (len) {
    long done = raw3(SYS_write, file, (long)next, (long)len);
    if (done <= 0) _exit(99);
    next += done;
    len -= (size_t)done;
  }
}

/* One record: a line, then the bytes that it announces. */
static void note(const char *what, unsigned long inode, long a, long b, size_t bytes, const char *from, const char *to) {
  if (log_file < 0) return;
  static char line[3 * PATH_MAX];
  int len = snprintf(line, sizeof line, "%s\t%lu\t%ld\t%ld\t%zu\t%s\t%s\n", what, inode, a, b, bytes, from, to);
  put(log_file, line, (size_t)len);
}

static const char *name_of(long number) {
  switch (number) {
    case SYS_open: case SYS_openat: case SYS_creat: return "open";
    case SYS_write: case SYS_pwrite64: case SYS_writev: case SYS_pwritev: case SYS_pwritev2: return "write";
    case SYS_ftruncate: case SYS_truncate: return "truncate";
    case SYS_fallocate: return "fallocate";
    case SYS_fsync: case SYS_fdatasync: return "sync";
    case SYS_rename: case SYS_renameat: case SYS_renameat2: return "rename";
    case SYS_unlink: case SYS_unlinkat: case SYS_rmdir: return "unlink";
    case SYS_close: return "close";
    default: return "other";
  }
}

static long gathered(const struct iovec *parts, long count) {
  long sum = 0;
  for (long i = 0; i < count; i++) sum += (long)parts[i].iov_len;
  return sum;
}

/* Whether the call is to fail; kills the process if it is to die here. */
static int failing(long number, const char *about) {
  long index = seen++;
  if (fail_at < 0 || index < fail_at || (index > fail_at && !fail_on)) return 0;
  if (count_file >= 0) {
    char text[PATH_MAX + 64];
    put(count_file, text, (size_t)snprintf(text, sizeof text, "%ld\t%s\t%s\n", index, name_of(number), about));
  }
  if (fail_kind == KILL) raw3(SYS_kill, raw3(SYS_getpid, 0, 0, 0), SIGKILL, 0);
  return 1;
}

static long answer(long n, long a, long b, long c, long d, long e, long f) {
  static char path[PATH_MAX], other[PATH_MAX];
  int at = AT_FDCWD, to_at = AT_FDCWD;
  const char *name = (const char *)a, *to = (const char *)b;
  switch (n) {
    case SYS_creat: c = b; b = O_CREAT | O_WRONLY | O_TRUNC; n = SYS_open; /* fall through */
    case SYS_open: d = c; c = b; b = a; a = AT_FDCWD; n = SYS_openat; /* fall through */
    case SYS_openat: {
      if (!path_at((int)a, (const char *)b, path) || !(c & (O_CREAT | O_TRUNC | O_WRONLY | O_RDWR | O_DIRECTORY)))
        return raw(n, a, b, c, d, e, f);
      struct stat found;
      int there = raw3(SYS_stat, (long)path, (long)&found, 0) == 0;
      if (failing(n, path)) return fail_kind > 0 ? -fail_kind : -EINTR;
      long file = raw(n, a, b, c, d, e, f);
      if (file >= 0 && (c & O_TMPFILE) == O_TMPFILE) note("create", number_of((int)file), 0, 0, 0, "", "");
      else if (file >= 0 && !there) note("create", number_of((int)file), 0, 0, 0, path, "");
      else if (file >= 0 && (c & O_TRUNC)) note("truncate", number_of((int)file), 0, 0, 0, path, "");
      return file;
    }
    case SYS_write: case SYS_pwrite64: case SYS_writev: case SYS_pwritev: case SYS_pwritev2: {
      if (!path_of((int)a, path)) break;
      int vector = n != SYS_write && n != SYS_pwrite64, placed = n != SYS_write && n != SYS_writev;
      long len = vector ? gathered((const struct iovec *)b, c) : c;
      long offset = placed ? d : raw3(SYS_lseek, a, 0, SEEK_CUR);
      if (!placed && raw3(SYS_fcntl, a, F_GETFL, 0) & O_APPEND) offset = raw3(SYS_lseek, a, 0, SEEK_END);
      if (failing(n, path)) {
        if (fail_kind > 0) return -fail_kind;
        if (vector || len < 2) return -EINTR;
        c = len / 2;
      }
      long done = raw(n, a, b, c, d, e, f);
      if (done > 0 && log_file >= 0) {
        note("write", number_of((int)a), offset, 0, (size_t)done, path, "");
        if (!vector) put(log_file, (const void *)b, (size_t)done);
        else {
          long left = done;
          for (const struct iovec *part = (const struct iovec *)b; left > 0; part++) {
            long take = left < (long)part->iov_len ? left : (long)part->iov_len;
            put(log_file, part->iov_base, (size_t)take);
            left -= take;
          }
        }
      }
      return done;
    }
    case SYS_ftruncate: case SYS_fallocate: case SYS_fsync: case SYS_fdatasync: {
      if (!path_of((int)a, path)) break;
      if (failing(n, path)) return fail_kind > 0 ? -fail_kind : -EINTR;
      long done = raw(n, a, b, c, d, e, f);
      if (done < 0) return done;
      if (n == SYS_ftruncate) note("truncate", number_of((int)a), b, 0, 0, path, "");
      else if (n == SYS_fallocate) note(b & 8 ? "collapse" : b ? "unknown" : "extend", number_of((int)a), c, d, 0, path, "");
      else note("sync", number_of((int)a), 0, 0, 0, path, "");
      return done;
    }
    case SYS_close: {
      struct stat found;
      /* Closing a folder cannot lose anything. */
      if (!path_of((int)a, path) || raw3(SYS_fstat, a, (long)&found, 0) || !S_ISREG(found.st_mode)) break;
      if (failing(n, path)) {
        raw(n, a, b, c, d, e, f);
        return fail_kind > 0 ? -fail_kind : -EINTR;
      }
      break;
    }
    case SYS_renameat: case SYS_renameat2: at = (int)a; name = (const char *)b; to_at = (int)c; to = (const char *)d;
      /* fall through */
    case SYS_rename: {
      int here = path_at(at, name, path), there = path_at(to_at, to, other);
      if (!here && !there) break;
      if (failing(n, other)) return fail_kind > 0 ? -fail_kind : -EINTR;
      long done = raw(n, a, b, c, d, e, f);
      if (done == 0) note("rename", 0, 0, 0, 0, path, other);
      return done;
    }
    case SYS_unlinkat: at = (int)a; name = (const char *)b; /* fall through */
    case SYS_unlink: case SYS_rmdir: {
      if (!path_at(at, name, path)) break;
      if (failing(n, path)) return fail_kind > 0 ? -fail_kind : -EINTR;
      long done = raw(n, a, b, c, d, e, f);
      if (done == 0) note("unlink", 0, 0, 0, 0, path, "");
      return done;
    }
    case SYS_sendfile: case SYS_splice: case SYS_copy_file_range: {
      int file = (int)(n == SYS_sendfile ? a : c);
      if (!path_of(file, path)) break;
      long done = raw(n, a, b, c, d, e, f);
      if (done > 0) note("unknown", number_of(file), n, done, 0, path, "");
      return done;
    }
    default: {
      /* Links and folders: the model has no rule for them, and reports them. */
      if (n == SYS_linkat || n == SYS_mkdirat) { at = (int)a; name = (const char *)b; }
      if (n == SYS_link || n == SYS_symlink) name = (const char *)b;
      if (n == SYS_symlinkat) { at = (int)b; name = (const char *)c; }
      if (n == SYS_linkat) { at = (int)c; name = (const char *)d; }
      int here = path_at(at, name, path);
      long done = raw(n, a, b, c, d, e, f);
      if (here && done == 0) note("unknown", 0, n, 0, 0, path, "");
      return done;
    }
  }
  return raw(n, a, b, c, d, e, f);
}

static void handler(int signal, siginfo_t *info, void *context) {
  (void)signal;
  (void)info;
  int saved = errno;
  greg_t *regs = ((ucontext_t *)context)->uc_mcontext.gregs;
  while (__atomic_exchange_n(&lock, 1, __ATOMIC_ACQUIRE)) raw3(SYS_sched_yield, 0, 0, 0);
  regs[REG_RAX] = answer(regs[REG_RAX], regs[REG_RDI], regs[REG_RSI], regs[REG_RDX], regs[REG_R10], regs[REG_R8], regs[REG_R9]);
  __atomic_store_n(&lock, 0, __ATOMIC_RELEASE);
  errno = saved;
}

static int opened(const char *variable) {
  const char *path = getenv(variable);
  if (!path) return -1;
  int file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  /* Far from the file descriptors that programs use. */
  int high = file < 0 ? -1 : fcntl(file, F_DUPFD_CLOEXEC, 700);
  if (high < 0) { perror(variable); _exit(98); }
  close(file);
  return high;
}

__attribute__((destructor)) static void finished(void) {
  char text[32];
  if (count_file >= 0) put(count_file, text, (size_t)snprintf(text, sizeof text, "%ld calls\n", seen));
}

__attribute__((constructor)) static void begin(void) {
  const char *wanted = getenv("CALLS_FOLDER");
  if (!wanted || !realpath(wanted, folder)) return;
  folder_len = strlen(folder);
  log_file = opened("CALLS_LOG");
  count_file = opened("CALLS_COUNT");
  char what[16] = "";
  const char *fail = getenv("CALLS_FAIL");
  if (fail && sscanf(fail, "%ld+ %15s", &fail_at, what) == 2) fail_on = 1;
  else if (fail) sscanf(fail, "%ld %15s", &fail_at, what);
  fail_kind = !strcmp(what, "SHORT") ? SHORT : !strcmp(what, "KILL") ? KILL : atoi(what);
  struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | SA_NODEFER | SA_RESTART};
  sigaction(SIGSYS, &action, NULL);
  struct sock_filter code[COUNT + 10];
  int size = 0;
  unsigned long after = (unsigned long)calls_after;
#define LOAD(field) (struct sock_filter) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
  code[size++] = LOAD(arch);
  code[size++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AUDIT_ARCH_X86_64, 0, COUNT + 5);
  code[size++] = LOAD(instruction_pointer);
  code[size++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)after, 0, 2);
  code[size++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, instruction_pointer) + 4);
  code[size++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)(after >> 32), COUNT + 1, 0);
  code[size++] = LOAD(nr);
  for (int i = 0; i < COUNT; i++)
    code[size++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)WATCHED[i], COUNT - i, 0);
  code[size++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
  code[size++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP);
  struct sock_fprog program = {.len = (unsigned short)size, .filter = code};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) {
    perror("cannot watch system calls");
    _exit(97);
  }
}
