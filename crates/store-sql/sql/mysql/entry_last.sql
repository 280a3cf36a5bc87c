SELECT place FROM turn WHERE number = 1
