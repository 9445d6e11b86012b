#include "sampling/sigma_spacing.h"

#include <cmath>

namespace danqing {
namespace {

// Value i of numpy's linspace(first, last, n): the step is rounded first, the end is exact.
double linspace(double first, double last, int n, int i) {
  if (n > 1 && i == n - 1) return last;
  return n > 1 ? i * ((last - first) / (n - 1)) + first : first;
}

// Regularised incomplete beta function by its continued fraction (DLMF 8.17.22, modified Lentz), which converges fast
// for x below (a + 1) / (a + b + 2); beyond, I_x(a, b) = 1 - I_{1-x}(b, a).
double beta_cdf(double x, double a, double b) {
  if (x <= 0) return 0;
  if (x >= 1) return 1;
  if (x > (a + 1) / (a + b + 2)) return 1 - beta_cdf(1 - x, b, a);
  constexpr double tiny = 1e-300;
  double c = 1, d = 1 - (a + b) * x / (a + 1);
  d = 1 / (std::fabs(d) < tiny ? tiny : d);
  double fraction = d;
  for (int m = 1; m <= 500; ++m) {
    const double even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m));
    const double odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1));
    double change = 1;
    for (const double term : {even, odd}) {
      d = 1 + term * d;
      c = 1 + term / c;
      d = 1 / (std::fabs(d) < tiny ? tiny : d);
      if (std::fabs(c) < tiny) c = tiny;
      change = c * d;
      fraction *= change;
    }
    if (std::fabs(change - 1) < 1e-16) break;
  }
  const double log_beta = std::lgamma(a) + std::lgamma(b) - std::lgamma(a + b);
  return std::exp(a * std::log(x) + b * std::log1p(-x) - log_beta) * fraction / a;
}

}  // namespace

double beta_quantile(double p, double a, double b) {
  if (!(p > 0)) return 0;
  if (!(p < 1)) return 1;
  double low = 0, high = 1;
  for (int i = 0; i < 100 && high - low > 1e-16; ++i) {  // the CDF is monotonic: bisection cannot go astray
    const double middle = (low + high) / 2;
    (beta_cdf(middle, a, b) < p ? low : high) = middle;
  }
  return (low + high) / 2;
}

std::vector<double> karras_sigmas(double first, double last, int n) {
  constexpr double rho = 7;
  const double a = std::pow(first, 1 / rho), b = std::pow(last, 1 / rho);
  std::vector<double> out;
  for (int i = 0; i < n; ++i) out.push_back(std::pow(a + linspace(0, 1, n, i) * (b - a), rho));
  return out;
}

std::vector<double> exponential_sigmas(double first, double last, int n) {
  std::vector<double> out;
  for (int i = 0; i < n; ++i) out.push_back(std::exp(linspace(std::log(first), std::log(last), n, i)));
  return out;
}

std::vector<double> beta_sigmas(double first, double last, int n) {
  std::vector<double> out;
  for (int i = 0; i < n; ++i) out.push_back(last + beta_quantile(1 - linspace(0, 1, n, i), 0.6, 0.6) * (first - last));
  return out;
}

}  // namespace danqing
