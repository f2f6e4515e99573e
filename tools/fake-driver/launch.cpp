// Entry points about modules and kernels: PTX and machine code give the names; the same bodies, compiled for the host,
// run.
#include "state.hpp"
#include <csetjmp>
#include <csignal>

// Writes a message where the caller requested the compiler's log.
static void write_log(const char* text, unsigned count, const int* options, void** values) {
    enum { ERROR_LOG = 5, ERROR_LOG_LEN = 6 };
    char* log = nullptr;
    size_t len = 0;
    for (unsigned at = 0; options && values && at < count; at++) {
        if (options[at] == ERROR_LOG) log = static_cast<char*>(values[at]);
        if (options[at] == ERROR_LOG_LEN) len = reinterpret_cast<size_t>(values[at]);
    }
    if (log && len) std::snprintf(log, len, "%s", text);
}

// The number after a directive, such as 80 for ".version 8.0" or 70 for ".target sm_70"; 0 where there is none.
static unsigned number_after(const std::string& text, const char* directive) {
    size_t at = text.find(directive);
    if (at == std::string::npos) return 0;
    unsigned value = 0;
    for (at += std::strlen(directive); at < text.size() && value < 10000; at++) {
        if (text[at] == '.') continue;
        if (text[at] < '0' || text[at] > '9') break;
        value = value * 10 + unsigned(text[at] - '0');
    }
    return value;
}

// Reads the parts of PTX that matter here. Not OK: the driver could not compile it for this device.
static CUresult read_ptx(Module& module, const void* image) {
    const Script& script = state().script;
    module.text = static_cast<const char*>(image);
    const unsigned isa = number_after(module.text, ".version "), target = number_after(module.text, ".target sm_");
    // A driver of CUDA 12.x reads PTX up to 8.x.
    const uint64_t newest = (script.version / 1000 - 4) * 10 + script.version % 1000 / 10;
    if (!isa || !target) return INVALID_IMAGE;
    if (isa > newest) return UNSUPPORTED_PTX_VERSION;
    return target > script.capability ? INVALID_PTX : OK;
}

// The same for machine code.
static CUresult read_cubin(Module& module, const void* image) {
    const Script& script = state().script;
    if (script.refuse_cubin) return CUresult(script.refuse_cubin);
    if (!module.cubin.read(image)) return INVALID_IMAGE;
    return module.cubin.runs_on(script.capability) ? OK : NO_BINARY_FOR_GPU;
}

API CUresult cuModuleLoadDataEx(CUmodule* handle, const void* image, unsigned count, int* options, void** values) {
    Call call(Need::Context);
    if (call.result) return call.result;
    if (!handle || !image) return INVALID_VALUE;
    State& s = state();
    auto module = std::make_shared<Module>();
    module->context = call.context;
    const bool machine = Cubin::is(image);
    CUresult result = machine ? read_cubin(*module, image) : read_ptx(*module, image);
    if (s.script.fail_module) result = UNSUPPORTED_PTX_VERSION;
    if (result) {
        write_log("fake driver: this module cannot be compiled for this device", count, options, values);
        return result;
    }
    s.count.modules_made++;
    s.count.cubins_made += machine;
    *handle = s.modules.add(module);
    return OK;
}

API CUresult cuModuleLoadData(CUmodule* handle, const void* image) {
    return cuModuleLoadDataEx(handle, image, 0, nullptr, nullptr);
}

API CUresult cuModuleUnload(CUmodule handle) {
    Call call(Need::Context, Kind::GivesBack);
    State& s = state();
    const auto module = s.modules.find(handle);
    if (!module) {
        if (call.result) return call.result;
        report("cuModuleUnload of %p, which does not exist (any more)", handle);
        return INVALID_HANDLE;
    }
    s.scheduler.finish(module->context);
    for (const auto& [name, function] : module->functions) s.functions.remove(function);
    s.modules.remove(handle);
    return call.result ? call.result : module->context->broken;
}

// Where the entry point's parameters begin in the PTX.
static size_t find_entry(const std::string& text, const std::string& name) {
    const std::string directive = ".entry " + name;
    for (size_t at = text.find(directive); at != std::string::npos; at = text.find(directive, at + 1)) {
        const size_t end = at + directive.size();
        if (end < text.size() && std::strchr("( \t\r\n", text[end])) return end;
    }
    return std::string::npos;
}

// Bytes of a kernel's parameters as the module states them: 0 if it does not, NO_KERNEL if it has no such kernel.
static constexpr uint64_t NO_KERNEL = UINT64_MAX;
static uint64_t parameter_bytes(const Module& module, const std::string& name) {
    if (module.text.empty()) {
        const auto kernel = module.cubin.kernels.find(name);
        return kernel == module.cubin.kernels.end() ? NO_KERNEL : kernel->second;
    }
    const size_t entry = find_entry(module.text, name);
    if (entry == std::string::npos) return NO_KERNEL;
    const std::string parameters = module.text.substr(entry, module.text.find(')', entry) - entry);
    const size_t sized = parameters.find("_param_0[");
    return sized == std::string::npos ? 0 : std::strtoull(parameters.c_str() + sized + 9, nullptr, 10);
}

API CUresult cuModuleGetFunction(CUfunction* handle, CUmodule module_handle, const char* name) {
    Call call(Need::Context);
    if (call.result) return call.result;
    if (!handle || !name) return INVALID_VALUE;
    State& s = state();
    const auto module = s.modules.find(module_handle);
    if (!module) {
        report("module %p does not exist (any more)", module_handle);
        return INVALID_HANDLE;
    }
    const auto known = module->functions.find(name);
    if (known != module->functions.end()) {
        *handle = known->second;
        return OK;
    }
    const uint64_t len = parameter_bytes(*module, name);
    if (len == NO_KERNEL) return NOT_FOUND;
    const auto kernel = host_kernels().find(name);
    if (kernel == host_kernels().end()) {
        report("%s is in the module but not among the kernels compiled for the host: build the fake driver again",
               name);
        return NOT_FOUND;
    }
    if (len && len != kernel->second.args_size) {
        report("%s takes %llu bytes in the module and %llu on the host: one of the two is out of date", name,
               static_cast<unsigned long long>(len), static_cast<unsigned long long>(kernel->second.args_size));
        return INVALID_IMAGE;
    }
    *handle = s.functions.add(std::make_shared<Function>(Function{call.context, name, kernel->second}));
    module->functions.emplace(name, *handle);
    return OK;
}

enum FunctionAttribute { MAX_THREADS = 0, NUM_REGS = 4, PTX_VERSION = 5, BINARY_VERSION = 6, MAX_DYNAMIC_SHARED = 8 };

API CUresult cuFuncSetAttribute(CUfunction handle, int attribute, int value) {
    Call call(Need::Context);
    if (call.result) return call.result;
    const auto function = state().functions.find(handle);
    if (!function) return INVALID_HANDLE;
    if (attribute == MAX_DYNAMIC_SHARED) {
        if (value < 0 || value > 99 << 10) return INVALID_VALUE;
        function->dynamic_shared = value;
    }
    return OK;
}

API CUresult cuFuncGetAttribute(int* value, int attribute, CUfunction handle) {
    Call call(Need::Context);
    if (call.result) return call.result;
    const auto function = state().functions.find(handle);
    if (!function) return INVALID_HANDLE;
    if (!value || attribute < 0 || attribute > 15) return INVALID_VALUE;
    switch (attribute) {
    case MAX_THREADS: *value = int(function->kernel.threads); break;
    case NUM_REGS: *value = 32; break;
    case PTX_VERSION: *value = 70; break;
    case BINARY_VERSION: *value = int(state().script.capability); break;
    case MAX_DYNAMIC_SHARED: *value = function->dynamic_shared; break;
    default: *value = 0;
    }
    return OK;
}

API CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction handle, int threads, size_t shared) {
    Call call(Need::Context);
    if (call.result) return call.result;
    const auto function = state().functions.find(handle);
    if (!function) return INVALID_HANDLE;
    if (!blocks || threads <= 0) return INVALID_VALUE;
    *blocks = threads > int(function->kernel.threads) ? 0 : std::min(32, 2048 / threads);
    if (shared) *blocks = int(std::min<size_t>(size_t(*blocks), (100 << 10) / shared));
    return OK;
}

// A kernel that leaves its memory hits an unmapped page: that is the device's illegal address, and does not end the
// process.
static thread_local sigjmp_buf* rescue = nullptr;
static struct sigaction previous[2];

static void on_fault(int signal, siginfo_t* info, void* machine) {
    if (rescue) siglongjmp(*rescue, 1);
    const struct sigaction& other = previous[signal == SIGBUS];
    if (other.sa_flags & SA_SIGINFO) other.sa_sigaction(signal, info, machine);
    else if (other.sa_handler != SIG_DFL && other.sa_handler != SIG_IGN) other.sa_handler(signal);
    else sigaction(signal, &other, nullptr);  // the access is tried again, and then ends the process
}

// Runs work that may touch the context's memory, and no other.
static CUresult run_guarded(const Context& context, const char* name, const std::function<void()>& body) {
    const Reach reach(context);
    struct sigaction own = {};
    own.sa_sigaction = on_fault;
    own.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    sigaction(SIGSEGV, &own, &previous[0]);
    sigaction(SIGBUS, &own, &previous[1]);
    sigjmp_buf here;
    // Volatile: it is read after a jump back.
    volatile CUresult result = OK;
    if (sigsetjmp(here, 1) == 0) {
        rescue = &here;
        body();
    } else {
        // The jump skips the destructors of the kernel's frame; its block's shared memory stays allocated.
        result = ILLEGAL_ADDRESS;
        report("%s left its memory", name);
    }
    rescue = nullptr;
    sigaction(SIGSEGV, &previous[0], nullptr);
    sigaction(SIGBUS, &previous[1], nullptr);
    return result;
}

static CUresult run_kernel(const Function& function, unsigned blocks, const std::vector<uint8_t>& args) {
    return run_guarded(*function.context, function.name.c_str(), [&] {
        function.kernel.launch(blocks, unsigned(state().script.lanes), args.data());
    });
}

// Counts a launch. Not OK: the script makes this one fail, and everything after it.
static CUresult count_launch(Context& context, uint64_t& nth) {
    State& s = state();
    nth = ++s.count.launch;
    if (nth != s.script.fail_launch) return OK;
    context.broken = LAUNCH_FAILED;
    s.scheduler.abandon(&context);
    return LAUNCH_FAILED;
}

API CUresult swath_fake_run(CUstream stream_handle, void (*run)(void*), void (*drop)(void*), void* data) {
    const std::shared_ptr<void> owned(data, drop);
    Call call(Need::Context);
    if (call.result) return call.result;
    Context& context = *call.context;
    const auto stream = stream_of(context, stream_handle);
    if (!stream) return INVALID_HANDLE;
    uint64_t nth = 0;
    if (const CUresult failed = count_launch(context, nth)) return failed;
    Work work;
    if (nth == state().script.fault_launch) work.run = [] { return ILLEGAL_ADDRESS; };
    else work.run = [&context, run, owned] { return run_guarded(context, "a library", [&] { run(owned.get()); }); };
    return submit(stream, std::move(work));
}

// An argument that is an address which the device cannot reach, or 0. The meaning of an argument's words is unknown
// here; but no length or count is as large as an address of ours, and two counts side by side do not hit a mapped
// page.
static uint64_t stray_pointer(const Context& context, const std::vector<uint8_t>& args) {
    State& s = state();
    for (size_t at = 0; at + 8 <= args.size(); at += 8) {
        uint64_t word;
        std::memcpy(&word, args.data() + at, 8);
        if (s.device.reserved(word)) {
            const Block* block = s.device.find(word);
            if (!block || block->context != &context) return word;
        } else if (s.host.reserved(word)) {
            if (!s.host.find(word)) return word;
        } else if (word >= 1ull << 40 && word < 1ull << 47) {
            unsigned char resident;
            if (mincore(reinterpret_cast<void*>(word & ~(Arena::PAGE - 1)), 1, &resident) == 0) return word;
        }
    }
    return 0;
}

API CUresult cuLaunchKernel(CUfunction handle, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                            unsigned block_y, unsigned block_z, unsigned shared, CUstream stream_handle, void** params,
                            void** extra) {
    Call call(Need::Context);
    if (call.result) return call.result;
    State& s = state();
    Context& context = *call.context;
    const auto function = s.functions.find(handle);
    const auto stream = stream_of(context, stream_handle);
    if (!function || function->context != &context || !stream) return INVALID_HANDLE;
    if (extra || !params || !params[0]) return INVALID_VALUE;
    // Kernels of ours count blocks and lanes along one axis, in whole warps.
    if (!grid_x || grid_x > INT32_MAX || grid_y != 1 || grid_z != 1) return INVALID_VALUE;
    if (!block_x || block_x % 32 || block_x > 1024 || block_y != 1 || block_z != 1) return INVALID_VALUE;
    if (shared > unsigned(function->dynamic_shared)) return INVALID_VALUE;
    if (block_x > function->kernel.threads) return LAUNCH_OUT_OF_RESOURCES;
    uint64_t nth = 0;
    if (const CUresult failed = count_launch(context, nth)) return failed;
    const auto* bytes = static_cast<const uint8_t*>(params[0]);
    std::vector<uint8_t> args(bytes, bytes + function->kernel.args_size);
    if (const uint64_t stray = stray_pointer(context, args)) {
        report("%s is given %llx, which is not in live device memory", function->name.c_str(),
               static_cast<unsigned long long>(stray));
        context.broken = ILLEGAL_ADDRESS;
        s.scheduler.abandon(&context);
        return ILLEGAL_ADDRESS;
    }
    Work work;
    if (nth == s.script.fault_launch) work.run = [] { return ILLEGAL_ADDRESS; };
    else work.run = [function, grid_x, args = std::move(args)] { return run_kernel(*function, grid_x, args); };
    return submit(stream, std::move(work));
}
