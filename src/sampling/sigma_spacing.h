// Sigma spacings between two ends, in f64.
#pragma once
#include <vector>

namespace danqing {

/// Karras et al. 2022, equation 5, rho = 7. `n` values from first to last, both >= 0.
std::vector<double> karras_sigmas(double first, double last, int n);
/// Even in the logarithm; both ends > 0.
std::vector<double> exponential_sigmas(double first, double last, int n);
/// "Beta Sampling is All You Need" (Lee et al. 2024): quantiles of Beta(0.6, 0.6).
std::vector<double> beta_sigmas(double first, double last, int n);

/// x with I_x(a, b) = p: the quantile of the Beta(a, b) distribution; a, b > 0, p in [0, 1]. Absolute error below
/// 1e-14.
double beta_quantile(double p, double a, double b);

}  // namespace danqing
