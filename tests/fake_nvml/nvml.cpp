// A library with the names of NVIDIA's management library that knows one card and fails for a second one. Structures as
// NVML documents them.
#include <cstring>

#define API extern "C" __attribute__((visibility("default"))) int

static int init = 0;
API nvmlInit_v2() { return ++init, 0; }
API nvmlShutdown() { return --init, 0; }
API nvmlSystemGetDriverVersion(char* v, unsigned n) { return std::strncpy(v, "555.42", n), 0; }
API nvmlDeviceGetCount_v2(unsigned* n) { return *n = 2, init > 0 ? 0 : 1; }
API nvmlDeviceGetHandleByIndex_v2(unsigned i, void** h) { return *h = &init, i == 0 ? 0 : 15; }
API nvmlDeviceGetName(void*, char* v, unsigned n) { return std::strncpy(v, "NVIDIA Test", n), 0; }
struct Pci {
  char old_id[16];
  unsigned domain, bus, device, id, subsystem;
  char bus_id[32];
};
API nvmlDeviceGetPciInfo_v3(void*, Pci* p) {
  *p = {"0000:1B:00.0", 0, 0x1b, 0, 0x233010de, 0, "00000000:1B:00.0"};
  return 0;
}
API nvmlDeviceGetCudaComputeCapability(void*, int* major, int* minor) { return *major = 9, *minor = 0, 0; }
API nvmlDeviceGetTemperature(void*, int sensor, unsigned* v) { return *v = 44, sensor == 0 ? 0 : 2; }
struct Field {
  unsigned field, scope;
  long long timestamp, latency;
  int type, result;
  unsigned long long value;
};
API nvmlDeviceGetFieldValues(void*, int n, Field* f) {
  if (n != 1 || f->field != 82) return 2;
  f->type = 1, f->result = 0, f->value = 51;
  return 0;
}
struct Utilization {
  unsigned gpu, memory;
};
API nvmlDeviceGetUtilizationRates(void*, Utilization* u) { return *u = {62, 30}, 0; }
struct Memory {
  unsigned long long total, free, used;
};
API nvmlDeviceGetMemoryInfo(void*, Memory* m) { return *m = {80ull << 30, 75ull << 30, 5ull << 30}, 0; }
API nvmlDeviceGetPowerUsage(void*, unsigned* v) { return *v = 345678, 0; }
API nvmlDeviceGetEnforcedPowerLimit(void*, unsigned* v) { return *v = 700000, 0; }
API nvmlDeviceGetTotalEnergyConsumption(void*, unsigned long long* v) { return *v = 123456, 0; }
API nvmlDeviceGetClockInfo(void*, int type, unsigned* v) { return *v = type == 1 ? 1980 : 2619, type <= 2 ? 0 : 2; }
API nvmlDeviceGetCurrPcieLinkGeneration(void*, unsigned* v) { return *v = 5, 0; }
API nvmlDeviceGetMaxPcieLinkGeneration(void*, unsigned* v) { return *v = 5, 0; }
API nvmlDeviceGetCurrPcieLinkWidth(void*, unsigned* v) { return *v = 16, 0; }
API nvmlDeviceGetMaxPcieLinkWidth(void*, unsigned* v) { return *v = 16, 0; }
API nvmlDeviceGetCurrentClocksThrottleReasons(void*, unsigned long long* v) { return *v = 0x4, 0; }
