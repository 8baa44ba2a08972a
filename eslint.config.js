import eslint from '@eslint/js';
import tseslint from 'typescript-eslint';

export default tseslint.config(
  { ignores: ['build/**', 'dist', 'node_modules', 'src/generated', '**/*.js', '**/*.mjs'] },
  eslint.configs.recommended,
  ...tseslint.configs.strictTypeChecked,
  {
    languageOptions: { parserOptions: { projectService: true } },
    rules: {
      '@typescript-eslint/no-floating-promises': 'error',
      '@typescript-eslint/restrict-template-expressions': ['error', { allowNumber: true, allowBoolean: true }],
      '@typescript-eslint/no-confusing-void-expression': ['error', { ignoreArrowShorthand: true }],
      '@typescript-eslint/no-unused-vars': ['error', { argsIgnorePattern: '^_' }],
      '@typescript-eslint/switch-exhaustiveness-check': 'error',
      'no-restricted-syntax': [
        'error',
        { selector: 'TSEnumDeclaration', message: 'Use a union of literals.' },
        { selector: 'ExportDefaultDeclaration', message: 'Use a named export.' },
      ],
    },
  },
  {
    // The data path runs on the I/O contract alone, so that it can be simulated.
    files: ['src/nbd/**', 'src/replica/**', 'src/writer/**', 'src/pool/slices.ts'],
    rules: {
      'no-restricted-imports': ['error', { patterns: ['node:*', 'fs', 'net', 'timers', '@aws-sdk/*'] }],
      'no-restricted-globals': ['error', 'setTimeout', 'setInterval', 'setImmediate', 'Date', 'performance', 'crypto'],
      'no-restricted-properties': ['error', { object: 'Math', property: 'random' }],
    },
  },
  {
    // EC2 has one door.
    files: ['src/**'],
    ignores: ['src/ebs/**', 'src/nbd/**', 'src/replica/**', 'src/writer/**', 'src/pool/slices.ts'],
    rules: { 'no-restricted-imports': ['error', { patterns: ['@aws-sdk/*'] }] },
  },
  // Tests take methods from prototypes to wrap them.
  { files: ['test/**'], rules: { '@typescript-eslint/unbound-method': 'off' } },
  { files: ['vitest.config.ts'], rules: { 'no-restricted-syntax': 'off' } },
);
