export const CHECKS = [];
